"""The reason why a module is not printed."""

from __future__ import annotations


class Unprintable(Exception):
    """The generator has no way to print a module; the message says what is in the way."""
