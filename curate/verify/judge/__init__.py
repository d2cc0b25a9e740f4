"""The judge itself: plans trials, holds what is right and weighs what a candidate did."""
