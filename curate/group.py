"""A group of commands whose errors end as one message and an exit code."""

from __future__ import annotations

import sys
from typing import Any

import click

Errors = tuple[type[Exception], ...]


class Commands(click.Group):
    """Exits with 2 for errors that a user can mend, 1 for others that are expected.

    Args:
        mendable: what the first are.
        stopped: what the others are.
    """

    def __init__(self, *args: Any, mendable: Errors, stopped: Errors = (), **form: Any) -> None:
        super().__init__(*args, **form)
        self.mendable, self.stopped = mendable, stopped

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except self.mendable as error:
            click.echo(f"curate: {error}", err=True)
            sys.exit(2)
        except self.stopped as error:
            click.echo(f"curate: {error}", err=True)
            sys.exit(1)
        except KeyboardInterrupt:
            click.echo("curate: interrupted; the same command goes on where it stopped", err=True)
            sys.exit(130)
