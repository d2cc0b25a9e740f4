"""Places in a Python file that a fill-in-the-middle example may leave out, found by tree-sitter.

==============  ==================================================================================
``body``        a function's body after its signature and docstring
``block``       the body of a compound statement, or two to eight statements in a row
``statement``   one statement
``memory``      of a masked `tl.load` or `tl.store`: pointer, mask, ``other``, or all arguments
``expression``  a right side, an argument, a condition, an operand or a returned value
==============  ==================================================================================

A hole covers whole syntax nodes. The first three kinds cover whole lines: they begin where a line
begins, with its indentation, and end before a line's end. At both places every tokenizer that
splits at line ends has a token's border, which keeps tokens of the prefix from changing with the
hole; and a prompt that ends with a newline is how an editor or a trainer cuts code. An expression
has no such place and is cut at its first and last character.

No hole lies in a string, a decorator, a signature or a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from tree_sitter import Node

from curate.clean.normalize import python_parser

HoleKind = Literal["body", "block", "statement", "memory", "expression"]
HOLE_KINDS: tuple[HoleKind, ...] = get_args(HoleKind)

LONGEST_RUN = 8  # statements

_LINE_END = re.compile(rb"[\r\n]")
_BLANK = re.compile(rb"[ \t\f]*")
_BLANK_OR_COMMENT = re.compile(rb"[ \t\f]*(#[^\r\n]*)?")
_BLANK_LINES = re.compile(rb"([ \t\f]*(\r\n|\r|\n))*")


@dataclass(frozen=True)
class Hole:
    """A span of a file's UTF-8 bytes.

    Attributes:
        node: tree-sitter's type of the node that is left out; ``run`` for several statements,
            ``argument_list`` for all arguments of a call.
        function: name of the outermost function that it lies in.
    """

    kind: HoleKind
    node: str
    start: int
    end: int
    function: str


def find_holes(code: bytes, entry_point: str | None = None) -> list[Hole]:
    """Return every hole of a file, by kind and place.

    Holes may overlap, but no two are equal: where kinds share a span, the first of `HOLE_KINDS`
    has it.

    Args:
        entry_point: with a kernel's name, only functions of this name and functions decorated
            with ``jit`` are looked into; without, all functions and methods.

    Raises:
        SyntaxError: the file does not parse.
    """
    root = python_parser().parse(code).root_node
    if root.has_error:
        raise SyntaxError("does not parse")
    found: dict[tuple[int, int], Hole] = {}
    for function in _outermost_functions(root, entry_point):
        name = _text(function.child_by_field_name("name"))
        for kind, node, start, end in _holes_of(function, code):
            hole = Hole(kind, node, start, end, name)
            known = found.setdefault((start, end), hole)
            if HOLE_KINDS.index(kind) < HOLE_KINDS.index(known.kind):
                found[start, end] = hole
    return sorted(found.values(), key=lambda h: (HOLE_KINDS.index(h.kind), h.start, h.end))


_Span = tuple[HoleKind, str, int, int]


def _outermost_functions(root: Node, entry_point: str | None) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type == "function_definition" and _wanted(node, entry_point):
            yield node
        else:
            pending.extend(reversed(node.named_children))


def _wanted(function: Node, entry_point: str | None) -> bool:
    if entry_point is None or _text(function.child_by_field_name("name")) == entry_point:
        return True
    above = function.parent
    if above is None or above.type != "decorated_definition":
        return False
    names = (_text(d.named_children[0]) for d in above.children if d.type == "decorator")
    return any(re.search(r"\bjit\s*(\(|$)", name) for name in names)


def _holes_of(function: Node, code: bytes) -> Iterator[_Span]:
    """Yield the holes of a function, and of the functions in it."""
    pending = [function]
    while pending:
        node = pending.pop()
        if node.type == "function_definition":
            yield from _body(node, code)
        elif node.type == "block":
            yield from _statements(node, code)
        elif node.type == "call":
            yield from _memory(node)
        for part in _expressions(node):
            yield "expression", part.type, part.start_byte, part.end_byte
        pending.extend(child for child in node.named_children if child.type not in _CLOSED)


_CLOSED = frozenset({"comment", "decorator", "string", "concatenated_string", "type", "parameters"})
"""Nodes that no hole lies in; a hole may hold all of one."""


def _body(function: Node, code: bytes) -> Iterator[_Span]:
    """Yield the lines after the signature and docstring."""
    block = function.child_by_field_name("body")
    if block is None:
        return
    colon = next(child for child in reversed(function.children) if child.type == ":")
    statements = _without_comments(block)
    last = colon
    if statements and _is_string(statements[0]):
        last = statements.pop(0)
    rest = _BLANK_OR_COMMENT.match(code, last.end_byte)
    assert rest
    first_line = _BLANK_LINES.match(code, rest.end())
    assert first_line
    if statements and first_line.end() > rest.end():
        end = _line_end(block.named_children[-1], code)
        if end is not None:
            yield "body", "block", first_line.end(), end


def _statements(block: Node, code: bytes) -> Iterator[_Span]:
    """Yield a block, its statements, and the runs of statements in it."""
    lines = [(node, _line_span(node, code)) for node in _without_comments(block)]
    if lines and block.parent and block.parent.type not in _DEFINITIONS:
        first, end = lines[0][1], _line_end(block.named_children[-1], code)
        if first and end is not None:
            yield "block", "block", first[0], end
    for i, (node, span) in enumerate(lines):
        if span is None or _is_string(node):
            continue
        yield "statement", _statement_type(node), *span
        for _, final in lines[i + 1 : i + LONGEST_RUN]:
            if final is None:
                break
            yield "block", "run", span[0], final[1]


_DEFINITIONS = ("function_definition", "class_definition")


def _line_span(node: Node, code: bytes) -> tuple[int, int] | None:
    """Return the lines that a statement fills, or None if it shares one with other code."""
    start = _line_start(node.start_byte, code)
    end = _line_end(node, code)
    return None if start is None or end is None else (start, end)


def _line_start(position: int, code: bytes) -> int | None:
    """Return where the line begins, or None if more than space stands before the position."""
    start = max(code.rfind(b"\n", 0, position), code.rfind(b"\r", 0, position)) + 1
    return start if _BLANK.fullmatch(code, start, position) else None


def _line_end(node: Node, code: bytes) -> int | None:
    """Return where the node's last line ends, or None if other code follows on it."""
    rest = _BLANK_OR_COMMENT.match(code, node.end_byte)
    assert rest
    ends = rest.end() == len(code) or _LINE_END.match(code, rest.end())
    return rest.end() if ends else None


def _without_comments(block: Node) -> list[Node]:
    return [node for node in block.named_children if node.type != "comment"]


def _is_string(statement: Node) -> bool:
    """Whether a statement is a string and nothing else, as a docstring is."""
    only = statement.named_children
    return statement.type == "expression_statement" and only[0].type in (
        "string",
        "concatenated_string",
    )


def _statement_type(statement: Node) -> str:
    """Return what an expression statement holds (an assignment, a call), or its own type."""
    if statement.type == "expression_statement":
        return statement.named_children[0].type
    return statement.type


_FIELDS = {
    "assignment": ("right",),
    "augmented_assignment": ("right",),
    "keyword_argument": ("value",),
    "if_statement": ("condition",),
    "elif_clause": ("condition",),
    "while_statement": ("condition",),
    "for_statement": ("right",),
    "binary_operator": ("left", "right"),
    "boolean_operator": ("left", "right"),
    "unary_operator": ("argument",),
    "not_operator": ("argument",),
}
"""Fields of a node that hold an expression which may be a hole."""

_PARENTS = frozenset(
    {"argument_list", "comparison_operator", "conditional_expression"}
    | {"parenthesized_expression", "return_statement"}
)
"""Nodes whose every child is such an expression."""

_NO_EXPRESSION = frozenset(
    {"assignment", "augmented_assignment", "comment", "dictionary_splat", "keyword_argument"}
    | {"list_splat", "named_expression", "yield", "string", "concatenated_string"}
)


def _expressions(node: Node) -> Iterator[Node]:
    """Yield the nodes below this one that ``x`` could stand for."""
    parts = node.named_children if node.type in _PARENTS else []
    for field in _FIELDS.get(node.type, ()):
        parts += node.children_by_field_name(field)
    if parts and _operator(parts[0]) == _operator(node) != "":
        del parts[0]  # `a + b` of `a + b + c` is a node to the parser, but nothing to a reader
    return (part for part in parts if part.is_named and part.type not in _NO_EXPRESSION)


def _operator(node: Node) -> str:
    is_binary = node.type in ("binary_operator", "boolean_operator")
    return _text(node.child_by_field_name("operator")) if is_binary else ""


_MEMORY = {"load": ("pointer", "mask", "other"), "store": ("pointer", "value", "mask")}
"""Functions that read and write memory, with the names of their first parameters."""

_LANGUAGES = ("", "tl", "gl", "triton.language")
"""Names under which kernels call them; `gl` is Gluon, whose functions are the same."""


def _memory(call: Node) -> Iterator[_Span]:
    """Yield the pointer, mask, `other` and all arguments of a masked load or store."""
    language, _, function = _text(call.child_by_field_name("function")).rpartition(".")
    arguments = call.child_by_field_name("arguments")
    if language not in _LANGUAGES or function not in _MEMORY or arguments is None:
        return
    names = _MEMORY[function]
    nodes = [node for node in arguments.named_children if node.type != "comment"]
    given: dict[str, Node] = {}
    for position, node in enumerate(nodes):
        if node.type == "keyword_argument":
            value = node.child_by_field_name("value")
            assert value
            given[_text(node.child_by_field_name("name"))] = value
        elif node.type not in _NO_EXPRESSION and position < len(names):
            given[names[position]] = node
    if "mask" not in given or arguments.type != "argument_list":
        return
    for name in ("pointer", "mask", "other"):
        if name in given:
            yield "memory", given[name].type, given[name].start_byte, given[name].end_byte
    yield "memory", "argument_list", nodes[0].start_byte, nodes[-1].end_byte


def _text(node: Node | None) -> str:
    return (node.text or b"").decode() if node else ""
