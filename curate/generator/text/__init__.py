"""Text of programs: what a reference keeps, statements, expressions, words of Triton."""
