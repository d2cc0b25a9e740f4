"""Texts that share most of their words: MinHash, and sets that hold one another."""
