"""What the processes of the judge share: the warm host that forks them, messages, values."""
