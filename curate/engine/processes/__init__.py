"""Where the work is done: worker processes, the sandbox around them, and a Ray cluster."""
