"""Operators for which Inductor has no loops: in terms of others, or lowered here."""
