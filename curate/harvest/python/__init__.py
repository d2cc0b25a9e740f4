"""Python files taken apart, and definitions cut out of them so that they stand alone."""
