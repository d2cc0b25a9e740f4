"""The recipes that come with curate."""
