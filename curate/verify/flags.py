"""The judge's options as `curate verify` and ``python -m curate.verify`` both spell them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from curate.verify.verdict import Options

SHARD_HELP = "Judge the i-th of n parts only; a candidate's id decides which it is in."
SANDBOXES = {"bubblewrap": True, "none": False}


@dataclass(frozen=True)
class Flag:
    """How a command line shows one field of `Options`.

    Attributes:
        name: the field's.
        spelling: ``--memory-mb``; where the default is a bool, ``--no-`` turns it off.
        kind: the type of its value: a text where the field is not a number or a bool.
        default: its value if it is not given.
        help: what it does.
        metavar: what stands for its value, or None.
        choices: the values that there are; empty if any will do.
    """

    name: str
    spelling: str
    kind: type
    default: Any
    help: str
    metavar: str | None
    choices: tuple[str, ...]


def flags() -> Iterator[Flag]:
    """Yield the flag of every option."""
    for field in dataclasses.fields(Options):
        shown = field.metadata
        default = _shown(field.name, field.default)
        yield Flag(
            name=field.name,
            spelling=shown.get("flag", "--" + field.name.replace("_", "-")),
            kind=int if default is None else type(default),
            default=default,
            help=shown["help"],
            metavar=shown.get("metavar"),
            choices=shown.get("choices", ()),
        )


def _shown(name: str, value: Any) -> Any:
    if name == "sandbox":
        return next(word for word, on in SANDBOXES.items() if on == value)
    return ",".join(value) if isinstance(value, tuple) else value


def make_options(values: dict[str, Any]) -> Options:
    """Return the options of a command line; ``values`` holds that of each flag, by its name.

    Raises:
        ValueError: a value is not allowed; the message says which are.
    """
    targets = tuple(name.strip() for name in values["targets"].split(",") if name.strip())
    sandbox = SANDBOXES[values["sandbox"]]
    names = (field.name for field in dataclasses.fields(Options))
    return Options(
        **{name: values[name] for name in names} | {"targets": targets, "sandbox": sandbox}
    )
