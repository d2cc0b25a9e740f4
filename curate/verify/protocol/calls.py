"""Calls of a process's methods by the judge: arguments and answers have the methods' types.

The judge names the method itself, as in ``session.ask(Reference.draw, draw)``, so that types are
checked where calls are written. What comes is read by the method's annotations, which both ends
have: values that `curate.verify.protocol.wire.pack` takes, containers of them, and classes that
are a `message`.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

from curate.problem.values import Tensors
from curate.verify.protocol.wire import MESSAGES, WireError, pack, unpack

Packed = dict[str, object]
"""Arguments of a call by their names, as `pack` gives them; nothing in it has been looked at."""

Handler = Callable[[Packed, Tensors], tuple[object, Tensors]]
"""Answers a call with what `pack` makes of what the method gave, and its tensors."""

Class = TypeVar("Class", bound=type)
Given = ParamSpec("Given")
Answered = TypeVar("Answered")

_READERS: dict[type, Callable[[Any, Tensors], Any]] = {}


def message(cls: Class) -> Class:
    """Let a dataclass be sent: field by field, or as its ``to_json`` gives it."""
    if own_form := getattr(cls, "from_json", None):
        MESSAGES[cls] = lambda value, tensors: value.to_json()
        _READERS[cls] = lambda content, tensors: own_form(content)
        return cls
    hints = get_type_hints(cls)  # now: while a candidate runs, modules are hidden

    def made(content: Any, tensors: Tensors) -> Any:
        if not isinstance(content, list):
            raise WireError(f"not a {cls.__name__}")
        return cls(*(read(*pair, tensors) for pair in _pairs(hints.values(), content)))

    MESSAGES[cls] = lambda value, tensors: [pack(getattr(value, n), tensors) for n in hints]
    _READERS[cls] = made
    return cls


def read(hint: Any, packed: Any, tensors: Tensors) -> Any:
    """Return the value of a type that `pack` made this of.

    Raises:
        WireError: it is none of that type.
    """
    if hint in _READERS:
        return _READERS[hint](_content(packed, "message"), tensors)
    origin, parts = get_origin(hint), get_args(hint)
    if types.NoneType in parts:
        return None if packed is None else read(parts[0], packed, tensors)
    if origin is list:
        return [read(parts[0], item, tensors) for item in _items(packed, "list")]
    if origin is tuple:
        items = _items(packed, "tuple")
        kinds = parts[:1] * len(items) if parts[-1] is Ellipsis else parts
        return tuple(read(*pair, tensors) for pair in _pairs(kinds, items))
    if origin is dict:
        return {
            key: value
            for item in _items(packed, "dict")
            for key, value in [[read(*pair, tensors) for pair in _pairs(parts, item)]]
        }
    value = unpack(packed, tensors)
    kinds = parts or (dict if is_typeddict(hint) else hint,)  # of a union, such as int | bool
    if hint is not Any and not any(_is(value, kind) for kind in kinds):
        raise WireError(f"a {type(value).__name__} in place of {hint}")
    return value


def _is(value: Any, hint: Any) -> bool:
    if hint in (bool, int):  # a truth value is no number here
        return type(value) is hint
    return isinstance(value, int | float if hint is float else hint)


def _content(packed: Any, kind: str) -> Any:
    if not isinstance(packed, dict) or [*packed] != [kind]:
        raise WireError(f"not a {kind}")
    return packed[kind]


def _items(packed: Any, kind: str) -> list[Any]:
    items = _content(packed, kind)
    if not isinstance(items, list):
        raise WireError(f"not a {kind}")
    return items


def _pairs(hints: Any, items: Any) -> list[tuple[Any, Any]]:
    if not isinstance(items, list) or len(hints) != len(items):
        raise WireError("not so many values")
    return list(zip(hints, items, strict=True))


@functools.cache
def _form(function: Any) -> tuple[inspect.Signature, dict[str, Any]]:
    return inspect.signature(function), get_type_hints(function)


def pack_call(method: Any, args: Any, named: Any, tensors: Tensors) -> Packed:
    """Return a call of a class's method by its arguments' names."""
    given = _form(method)[0].bind(None, *args, **named).arguments  # without an object
    return {name: pack(value, tensors) for name, value in list(given.items())[1:]}


def read_answer(method: Any, packed: Any, tensors: Tensors) -> Any:
    """Return what a method gave."""
    return read(_form(method)[1]["return"], packed, tensors)


def handlers_of(*methods: Any) -> dict[str, Handler]:
    """Return what answers calls of objects' methods, by the methods' names."""
    return {method.__name__: _answering(method) for method in methods}


def _answering(method: Any) -> Handler:
    hints = _form(method.__func__)[1]

    def handler(given: Packed, tensors: Tensors) -> tuple[object, Tensors]:
        sent: Tensors = []
        arguments = {name: read(hints[name], packed, tensors) for name, packed in given.items()}
        return pack(method(**arguments), sent), sent

    return handler
