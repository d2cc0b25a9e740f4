"""Sources: rows with a pinned revision and a hash, out of package indexes, git and folders."""
