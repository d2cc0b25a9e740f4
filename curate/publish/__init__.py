"""What users see: the card, the report, provenance, and the way to the Hub."""
