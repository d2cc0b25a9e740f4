"""May we use it: the license of every file, the policy that decides, the texts kept."""
