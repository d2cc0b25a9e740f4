"""Where steps run: workers, the sandbox around them, and what they promise."""
