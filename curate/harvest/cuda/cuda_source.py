"""One parsed CUDA file: what stands at its top level, and which names that defines and mentions.

Nothing is preprocessed or compiled. tree-sitter reads a file as it stands, so that of the branches
of an ``#if`` all are seen; those that only ROCm's compiler takes are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from tree_sitter import Language, Node, Parser

from curate.harvest.python.source import source_of, walk

Role = Literal["kernel", "device", "host", "type", "macro", "using", "include", "other"]


@dataclass(frozen=True)
class CudaItem:
    """A part of a file's top level, or of a namespace in it.

    Attributes:
        path: the file.
        index: its number there.
        lines: its first and last line, from 1, with the comment right above it.
        role: what it is.
        names: the names by which other code finds it.
        around: the heads of the namespaces and conditions that it stands in, outermost first.
        text: its source, with the comment right above it.
        local: the names that it declares inside: parameters and variables.
    """

    path: str
    index: int
    lines: tuple[int, int]
    role: Role
    names: frozenset[str]
    around: tuple[str, ...]
    text: str
    local: frozenset[str]

    @cached_property
    def code(self) -> str:
        """Its source without comments and string literals."""
        return _NOT_CODE.sub(" ", self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """The identifiers in its code that may be names from outside: no members, no variables."""
        return frozenset(_WORD.findall(self.code)) - self.local

    @property
    def name(self) -> str:
        """The one name of a function."""
        return min(self.names, default="")

    @property
    def launches(self) -> bool:
        """Whether it has a launch in it, in CUDA's syntax or by the runtime's functions."""
        return "<<<" in self.code or "aunchKernel" in self.code


_WORD = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")
_NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_ROCM = re.compile(r"USE_ROCM|__HIP\w*|HIP_\w+|USE_HIP|__gfx\w+|\w*_ROCM\b")
_TYPES = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")
_MACROS = ("preproc_def", "preproc_function_def")
_OTHERS = ("declaration", "alias_declaration", "type_definition", "concept_definition")
_CONDITIONS = ("preproc_if", "preproc_ifdef")


@cache
def _parser() -> Parser:
    import tree_sitter_cuda  # 4 MB that only this language needs

    return Parser(Language(tree_sitter_cuda.language()))


def cuda_items(path: str, text: str) -> tuple[CudaItem, ...]:
    """Return the parts of a CUDA file, in order; what tree-sitter cannot read is left out."""
    root = _parser().parse(text.encode()).root_node
    return tuple(
        _item(path, index, node, around) for index, (node, around) in enumerate(_parts(root, ()))
    )


def _parts(block: Node, around: tuple[str, ...]) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Yield the parts of a block and the heads of what is around them."""
    for node in block.named_children:
        if node.type in _CONDITIONS:
            yield from _branches(node, around)
        elif node.type == "namespace_definition" or _is_block(node):
            body = node.child_by_field_name("body")
            if body is not None:
                head = (node.text or b"")[: body.start_byte - node.start_byte].decode().strip()
                yield from _parts(body, (*around, f"{head} {{"))
        elif node.type == "ERROR":
            yield from _parts(node, around)
        elif _role(node):
            yield node, around


def _is_block(node: Node) -> bool:
    """Whether a node is an ``extern "C" {…}``."""
    body = node.child_by_field_name("body") if node.type == "linkage_specification" else None
    return body is not None and body.type == "declaration_list"


def _branches(node: Node, around: tuple[str, ...]) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Yield the parts of every branch that a compiler for NVIDIA's GPUs may take."""
    if _is_guard(node):
        yield from _parts(node, around)
        return
    earlier: list[str] = []
    branch: Node | None = node
    while branch is not None:
        condition = _condition(branch)
        truth = _truth(condition) if condition else None
        if truth is not False:
            terms = [f"!({term})" for term in earlier]
            terms += [condition] if condition and truth is None else []
            yield from _parts(branch, (*around, f"#if {' && '.join(terms)}") if terms else around)
        if truth:
            return
        if condition and truth is None:
            earlier.append(condition)
        branch = branch.child_by_field_name("alternative")


def _is_guard(node: Node) -> bool:
    """Whether an ``#ifndef`` only keeps a header from being read twice."""
    name, inner = node.child_by_field_name("name"), node.named_children[1:2]
    if name is None or node.children[0].type != "#ifndef" or not inner:
        return False
    defined = inner[0].child_by_field_name("name") if inner[0].type == "preproc_def" else None
    return (
        defined is not None
        and defined.text == name.text
        and inner[0].child_by_field_name("value") is None
    )


def _condition(branch: Node) -> str:
    """Return what must hold for a branch; '' for an ``#else``."""
    if (name := branch.child_by_field_name("name")) is not None:
        negated = branch.children[0].type in ("#ifndef", "#elifndef")
        return f"{'!' * negated}defined({source_of(name)})"
    condition = branch.child_by_field_name("condition")
    return source_of(condition) if condition is not None else ""


def _truth(condition: str) -> bool | None:
    """Return what a condition on ROCm is for NVIDIA's compiler, None for other conditions."""
    term = re.sub(r"\s|defined|[()]", "", condition)
    negated, name = term.startswith("!"), term.removeprefix("!")
    return negated if _ROCM.fullmatch(name) else None


def _item(path: str, index: int, node: Node, around: tuple[str, ...]) -> CudaItem:
    first, role = node, _role(node) or "other"
    while role != "include" and (above := first.prev_sibling) and above.type == "comment":
        if above.end_point[0] < first.start_point[0] - 1 or _shares_line(above):
            break
        first = above
    after = node.next_sibling
    # Where a macro confuses the parser, it takes the semicolon for a statement of its own.
    last = after if after is not None and after.text == b";" else node
    source = _root(node).text or b""
    text = source[first.start_byte : last.end_byte].decode().rstrip()
    lines = (first.start_point[0] + 1, first.start_point[0] + 1 + text.count("\n"))
    return CudaItem(path, index, lines, role, frozenset(_names(node)), around, text, _local(node))


def _shares_line(comment: Node) -> bool:
    """Whether a comment stands behind code, which it is about."""
    before = comment.prev_sibling
    return before is not None and before.end_point[0] == comment.start_point[0]


def _root(node: Node) -> Node:
    while node.parent is not None:
        node = node.parent
    return node


def _inner(node: Node) -> Node:
    """Return what a template or an ``extern "C"`` declares."""
    while node.type in ("template_declaration", "linkage_specification"):
        node = node.child_by_field_name("body") or node.named_children[-1]
    return node


def _role(node: Node) -> Role | None:
    """Return what a node is; None for what defines nothing."""
    inner = _inner(node)
    if inner.type == "function_definition":
        body = inner.child_by_field_name("body")
        end = body.start_byte if body is not None else inner.end_byte
        head = (inner.text or b"")[: end - inner.start_byte]
        if b"__global__" in head:
            return "kernel"
        return "device" if b"__device__" in head else "host"
    if inner.type in _MACROS:
        return "macro"
    if inner.type in _TYPES:
        return "type"
    if inner.type == "preproc_include":
        return "include"
    if inner.type in ("using_declaration", "namespace_alias_definition"):
        return "using"
    return "other" if inner.type in _OTHERS else None


def _names(node: Node) -> Iterator[str]:
    """Yield the names by which other code finds what a node declares."""
    inner = _inner(node)
    if inner.type == "preproc_include":
        path = inner.child_by_field_name("path")
        yield source_of(path).strip('<>"') if path is not None else ""
        return
    if inner.type == "function_definition":
        yield from _declared(inner.child_by_field_name("declarator"))
        return
    if inner.type in ("declaration", "type_definition"):
        for declarator in inner.children_by_field_name("declarator"):
            yield from _declared(declarator)
        inner = inner.child_by_field_name("type") or inner
        if inner.type not in _TYPES:
            return
    name = inner.child_by_field_name("name")
    if name is not None:
        yield from _declared(name)
    if inner.type == "enum_specifier":
        for entry in (n for n in walk(inner) if n.type == "enumerator"):
            yield source_of(entry.named_children[0])


def _local(node: Node) -> frozenset[str]:
    """Return the parameters of a function or template and the variables in a function's body."""
    inner = _inner(node)
    if inner.type != "function_definition":
        return frozenset()
    found: set[str] = set()
    for part in walk(node):
        if part.type in _DECLARING:
            for declarator in part.children_by_field_name("declarator"):
                found.update(_declared(declarator))
        elif part.type == "type_parameter_declaration":
            found.update(source_of(n) for n in part.named_children[-1:])
    return frozenset(found)


_DECLARING = ("parameter_declaration", "optional_parameter_declaration", "declaration")
_LEAVES = ("identifier", "type_identifier", "field_identifier")


def _declared(declarator: Node | None) -> Iterator[str]:
    """Yield the name that a declarator declares.

    A method defined outside its class goes by the class's name, and an operator by the names of
    its operands' types: whoever needs those needs it.
    """
    node = declarator
    while node is not None and node.type not in _LEAVES:
        if node.type == "qualified_identifier":
            scope = node.child_by_field_name("scope")
            if scope is not None:
                yield source_of(scope).partition("<")[0]
                return
        if node.type == "function_declarator":
            inner = node.child_by_field_name("declarator")
            if inner is not None and inner.type in ("operator_name", "operator_cast"):
                yield from {source_of(n) for n in walk(node) if n.type == "type_identifier"}
                return
        following = node.child_by_field_name("declarator") or node.child_by_field_name("name")
        if following is None:
            kept = [n for n in node.named_children if n.type.endswith(("declarator", "identifier"))]
            following = kept[0] if kept else None
        node = following
    if node is not None:
        yield source_of(node)
