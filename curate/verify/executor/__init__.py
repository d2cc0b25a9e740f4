"""Trusted code that runs a candidate's operators and launches on arrays, and knows no problem."""
