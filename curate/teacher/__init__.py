"""Programs that a language model writes: prompts, the endpoint, and what is kept of its answers."""
