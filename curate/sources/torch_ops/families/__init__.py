"""Families of compositions: each writes one kind of problem that models and losses are made of."""
