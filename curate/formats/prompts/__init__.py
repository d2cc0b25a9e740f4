"""What a row asks for: the question, what may be said of its program, and worked examples."""
