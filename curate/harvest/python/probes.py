"""Answer what code asks of the platform where it is imported, so that it imports anywhere.

Answers are for one GPU, NVIDIA's H100 (`curate.devices.ON_CPU`): they decide constants and autotune
configurations, never what a kernel computes.
"""

from __future__ import annotations

import re

from tree_sitter import Node

from curate.devices import ON_CPU
from curate.harvest.python.jitted import called_name, dotted_target
from curate.harvest.python.package import Package
from curate.harvest.python.source import is_attribute, source_of, walk

ASKING = frozenset(
    {"attribute", "boolean_operator", "call", "comparison_operator", "conditional_expression"}
    | {"not_operator", "parenthesized_expression", "subscript"}
)
"""Types of the expressions that ask."""

_CALLS = {
    "torch.cuda.get_device_capability": str(ON_CPU.capability),
    "torch.cuda.get_device_name": f'"{ON_CPU.card}"',
    "torch.cuda.current_device": "0",
    "torch.cuda.device_count": "1",
    "triton.runtime.driver.active.get_current_device": "0",
}
_OBJECTS = (
    "torch.cuda.get_device_properties",
    "triton.runtime.driver.active.get_current_target",
    "triton.runtime.driver.active.utils.get_device_properties",
)
_MAJOR, _MINOR = ON_CPU.capability
_PARTS = {
    "arch": str(ON_CPU.arch),
    "backend": f'"{ON_CPU.backend}"',
    "major": str(_MAJOR),
    "minor": str(_MINOR),
    "max_shared_mem": str(ON_CPU.shared),
    "multi_processor_count": str(ON_CPU.processors),
    "multiprocessor_count": str(ON_CPU.processors),
    "name": f'"{ON_CPU.card}"',
    "shared_memory_per_block_optin": str(ON_CPU.shared),
    "warp_size": str(ON_CPU.warp_size),
    "warpSize": str(ON_CPU.warp_size),
}
_PART = re.compile(r"\s*(?:\.(\w+)|\[[\"'](\w+)[\"']\])")


def answer(package: Package, path: str, node: Node, everywhere: bool) -> str:
    """Return the expression to write for one that asks the platform; '' for any other.

    Args:
        package: the package.
        path: the file of the expression.
        node: the expression.
        everywhere: whether function bodies are answered too, not only what an import runs.
    """
    if not package.environment.decides:
        return ""
    if decided := _decided(package, path, node):
        return decided
    if not everywhere and _is_in_body(node):
        return ""
    if node.type == "call":
        return _CALLS.get(dotted_target(package, path, called_name(node)), "") or _default(
            package, path, node
        )
    if node.type in ("attribute", "subscript") and _is_object(package, path, node):
        part = _PART.fullmatch(source_of(node)[len(source_of(node.named_children[0])) :])
        return _PARTS.get(part[1] or part[2], "") if part else ""
    return ""


def _is_object(package: Package, path: str, node: Node) -> bool:
    call = node.named_children[0]
    return call.type == "call" and dotted_target(package, path, called_name(call)) in _OBJECTS


def _default(package: Package, path: str, call: Node) -> str:
    """Return the answer to ``getattr(properties, "name", default)``."""
    listed = call.child_by_field_name("arguments")
    if called_name(call) != "getattr" or listed is None or len(listed.named_children) < 2:
        return ""
    known = _is_object(package, path, listed)
    return _PARTS.get(source_of(listed.named_children[1]).strip("\"'"), "") if known else ""


def _is_in_body(node: Node) -> bool:
    """Whether an expression waits for a call of the function around it."""
    while node.parent is not None:
        if node.parent.type in ("function_definition", "lambda"):
            return node == node.parent.child_by_field_name("body")
        node = node.parent
    return False


def _decided(package: Package, path: str, node: Node) -> str:
    """Return the truth of a condition on the platform that cannot be asked as it stands."""
    named: Node | None = node
    if node.parent is not None and node.parent.type == "assignment":
        named = node.parent.child_by_field_name("left")  # `IS_AMD = anything`
    elif node.type not in ("call", "comparison_operator"):
        return ""
    truths = (package.environment.truth(n) for n in (node, named) if n is not None)
    truth = next((truth for truth in truths if truth is not None), None)
    if truth is None or node.type in ("true", "false"):
        return ""
    heads = {source_of(n) for n in walk(node) if n.type == "identifier" and not is_attribute(n)}
    dotted = [dotted_target(package, path, head) for head in heads]
    return "" if all(map(package.environment.is_allowed, dotted)) else str(truth)
