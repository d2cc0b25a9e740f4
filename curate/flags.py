"""Flags of a command from the fields of a dataclass, for click and for argparse."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


def option(default: Any, help: str, **shown: Any) -> Any:
    """Return a field of a dataclass that is a flag of the command line.

    Args:
        default: its value if the flag is not given.
        help: what it does.
        shown: attributes of `Flag` that do not follow from the default. ``choices`` may be a dict
            from words to the values that they stand for.
    """
    return field(default=default, metadata={"help": help, **shown})


@dataclass(frozen=True)
class Flag:
    """How a command line shows one field.

    Attributes:
        name: the field's.
        default: its value if the flag is not given, as the command line spells it.
        help: what it does.
        spelling: such as ``--memory-mb``; where the default is a bool, ``--no-`` turns it off.
        type: of its value.
        metavar: what stands for its value, or None.
        choices: the values that there are; empty if any will do.
        shown: what to say of the default in place of its value, or None.
    """

    name: str
    default: Any
    help: str
    spelling: str
    type: type
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    shown: str | None = None

    @property
    def note(self) -> str:
        """What to say of the default: '' where it is off, empty or unknown."""
        silent = self.default is None or self.default is False or self.default == ""
        return self.shown or ("" if silent else str(self.default))


def flags(options: type[Any]) -> Iterator[Flag]:
    """Yield the flag of every field that `option` made.

    A tuple of texts is spelled with commas; the type of a default of None is int unless the field
    names another.
    """
    for item in dataclasses.fields(options):
        if "help" not in item.metadata:
            continue
        known = dict(item.metadata)
        known["choices"] = tuple(known.get("choices", ()))
        default = _spelled(item)
        known.setdefault("spelling", "--" + item.name.replace("_", "-"))
        known.setdefault("type", int if default is None else type(default))
        yield Flag(name=item.name, default=default, **known)


def parse(options: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields that the flags of a command line give.

    Args:
        options: the dataclass.
        given: the value of each flag by its name; what is no flag of it is left out.
    """
    values = {}
    for item in dataclasses.fields(options):
        if "help" in item.metadata and item.name in given:
            values[item.name] = _value(item, given[item.name])
    return values


def _words(item: dataclasses.Field[Any]) -> dict[str, Any]:
    """Return the words of a field's choices that stand for other values."""
    choices = item.metadata.get("choices", ())
    return choices if isinstance(choices, dict) else {}


def _spelled(item: dataclasses.Field[Any]) -> Any:
    for word, value in _words(item).items():
        if value == item.default:
            return word
    return ",".join(item.default) if isinstance(item.default, tuple) else item.default


def _value(item: dataclasses.Field[Any], spelled: Any) -> Any:
    if isinstance(item.default, tuple):
        return tuple(part.strip() for part in spelled.split(",") if part.strip())
    return _words(item).get(spelled, spelled)
