"""``python -m curate`` and ``curate`` are one command."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the command line."""
    try:
        _speak_utf8()
        for stream in (sys.stdout, sys.stderr):  # PYTHONIOENCODING may still name another
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        from curate.terminal.shown import show_uncaught

        sys.excepthook = show_uncaught
        from curate.cli.main import main as command

        command()
    except KeyboardInterrupt:  # before a command has begun: nothing was done
        sys.exit(130)


def _speak_utf8() -> None:
    """Start anew in Python's UTF-8 mode where the locale is none of UTF-8 (LC_ALL=C).

    Names of files could not be read or written there, and neither could our messages.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    main()
