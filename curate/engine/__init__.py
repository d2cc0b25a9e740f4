"""Runs recipes: shards and their ledger, the processes that do the work, and their sandbox."""
