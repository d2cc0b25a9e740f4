"""Forms of a program that other names, words and layouts leave as they are."""
