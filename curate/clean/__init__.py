"""Steps that put code in order: normalise, parse, remove duplicates."""
