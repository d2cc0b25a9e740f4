"""The command line: commands, flags, and what a person sees in the terminal."""
