"""A group of commands whose errors end as one message and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from curate.files import CannotWrite, explain
from curate.terminal.shown import say, visible

Errors = tuple[type[Exception], ...]

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal asked this process to end; all goes as after Ctrl-C.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.signal = signal.Signals(number)


class Commands(click.Group):
    """Exits with 2 for errors that a user can mend, 1 for others that are expected.

    Args:
        errors: called once a command has failed; returns what the first are, besides those of the
            operating system, and what the others are. So help and completion import neither.
    """

    def __init__(
        self, *args: Any, errors: Callable[[], tuple[Errors, Errors]], **form: Any
    ) -> None:
        form.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **form)
        self.errors = errors

    def main(self, *args: Any, **form: Any) -> Any:
        """Run a command; a standard output that takes nothing is an error like any other."""
        try:
            return super().main(*args, **form)
        except OSError as error:
            _exit(2, _explain(error))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command of the group."""
        try:
            with _ended_by_signals():
                return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = visible(error.message)  # click prints it
            raise
        except (click.Abort, click.exceptions.Exit):
            raise
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # who read our output has gone; click ends the command
            _exit(2, _explain(error))
        except KeyboardInterrupt as error:
            number = error.signal if isinstance(error, Terminated) else signal.SIGINT
            what = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
            _exit(128 + number, f"{what}; the same command goes on where it stopped")
        except Exception as error:
            mendable, stopped = self.errors()
            if not isinstance(error, mendable + stopped):
                raise
            _exit(2 if isinstance(error, mendable) else 1, str(error))


def _explain(error: OSError) -> str:
    """Return what to tell of an error; all files that we write but our output have names."""
    has_name = error.filename or isinstance(error, CannotWrite)
    return explain(error) if has_name else f"standard output: {explain(error)}"


def _exit(code: int, message: str) -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        # What waits to be written would be tried once more when Python ends, and end it with 120.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with contextlib.suppress(OSError):
        say(f"curate: {message}", err=True)
    sys.exit(code)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Terminated`, unless they are handled otherwise (``nohup``)."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    taken = []
    for number in _ENDING:
        with contextlib.suppress(ValueError):  # not in the main thread
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, end)
                taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
