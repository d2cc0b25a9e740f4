"""What a program asserts and what it leaves open: sizes, ranks and types."""
