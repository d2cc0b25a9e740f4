"""Prove that the data teaches: train on it, test what was learned, and use it."""
