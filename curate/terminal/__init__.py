"""What goes to a terminal: other people's text is shown there, and not obeyed."""
