"""The form in which a task is written: KernelBench's (Ouyang et al., 2025)."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from tree_sitter import Node

from curate.harvest.modules.config_arguments import STAND_IN
from curate.harvest.python.source import (
    has_default,
    items_at,
    parse,
    source_of,
    text_at,
    undecorated,
)
from curate.rows import ModuleRow, Row, make_row


def task_row(row: ModuleRow | Row, reference: str) -> Row:
    """Return the row of a task that was made of another row's code."""
    return make_row(
        "task",
        reference,
        row["origin"],
        reference=reference,
        entry_point=row["entry_point"],
        license=row["license"],
        parent_ids=[row["id"]],
    )


def assemble(
    text: str, init_inputs: list[str], inputs: list[str], constants: Mapping[str, int]
) -> str:
    """Return a standalone file with ``get_inputs`` and ``get_init_inputs`` added.

    Args:
        text: the standalone file.
        init_inputs: expressions of the constructor's positional arguments.
        inputs: expressions of the arguments of ``forward``.
        constants: sizes that they name.
    """
    sizes = "".join(f"{name} = {value}\n" for name, value in constants.items())
    if any(STAND_IN in one for one in init_inputs):
        text = _with_import(text, f"from types import {STAND_IN}")
    return (
        f"{_with_import(text, 'import torch').rstrip()}\n\n\n"
        + (f"{sizes}\n\n" if sizes else "")
        + f"def get_inputs():\n    return {_listing(inputs)}\n\n\n"
        f"def get_init_inputs():\n    return {_listing(init_inputs)}\n"
    )


def renamed(expression: str, names: Mapping[str, str]) -> str:
    """Return an expression with other names."""
    for old, new in names.items():
        expression = re.sub(rf"(?<![.\w]){old}\b", new, expression)
    return expression


def _listing(items: list[str]) -> str:
    line = f"[{', '.join(items)}]"
    if len(line) <= 85:
        return line
    return "[\n" + "".join(f"        {_broken(item)},\n" for item in items) + "    ]"


def _broken(item: str) -> str:
    """Return a stand-in for a configuration that is too long for a line with a line for each."""
    if len(item) <= 85 or not item.startswith(STAND_IN):
        return item
    call = ast.parse(item, mode="eval").body
    assert isinstance(call, ast.Call)
    lines = [f"            {given.arg}={ast.unparse(given.value)},\n" for given in call.keywords]
    return f"{STAND_IN}(\n{''.join(lines)}        )"


def _with_import(text: str, statement: str) -> str:
    lines = text.split("\n")
    if statement in lines:
        return text
    first = next(i for i, line in enumerate(lines) if line and "__future__" not in line)
    return "\n".join([*lines[:first], statement, *lines[first:]])


def make_positional(text: str, model: str) -> str:
    """Return the file with the keyword-only arguments of a constructor made positional.

    KernelBench calls ``Model(*get_init_inputs())``. Arguments that could only be given by keyword
    may stand in any order, so those without a default move before those with one; no call changes
    its meaning. The text is returned unchanged where the constructor has no bare ``*``, or where
    Python forbids the order.
    """
    parameters = _constructor_parameters(text, model)
    items = parameters.named_children if parameters else []
    kinds = [item.type for item in items]
    if parameters is None or "keyword_separator" not in kinds:
        return text
    split = kinds.index("keyword_separator")
    extra = [item for item in items[split:] if item.type == "dictionary_splat_pattern"]
    keyword = [item for item in items[split + 1 :] if item not in extra]
    required = [item for item in keyword if not has_default(item)]
    if required and any(has_default(item) for item in items[:split]):
        return text
    order = [*items[:split], *required, *(i for i in keyword if has_default(i)), *extra]
    margin = " " * 8
    joined = "".join(f"\n{margin}{source_of(item)}," for item in order if item.type != "comment")
    data = text.encode()
    new = f"({joined}\n    )".encode()
    return (data[: parameters.start_byte] + new + data[parameters.end_byte :]).decode()


def _constructor_parameters(text: str, model: str) -> Node | None:
    for statement in parse(text).named_children:
        node = undecorated(statement)
        if node.type == "class_definition" and text_at(node, "name") == model:
            for child in items_at(node, "body"):
                if child.type == "function_definition" and text_at(child, "name") == "__init__":
                    return child.child_by_field_name("parameters")
    return None
