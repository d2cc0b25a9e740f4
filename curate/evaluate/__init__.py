"""`curate eval`: ask models for programs, have them judged, and sum up what the verdicts say."""
