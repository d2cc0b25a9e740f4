"""One parsed Python file: its statements, what they bind and what they read.

Nothing is imported or run: tree-sitter gives the structure, the standard library's `symtable`
gives the scopes.
"""

from __future__ import annotations

import symtable
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import tree_sitter_python
from tree_sitter import Language, Node, Parser

from curate.harvest.python.environment import Environment

_PARSER = Parser(Language(tree_sitter_python.language()))


@dataclass(frozen=True)
class Import:
    """What an import statement names, before it is followed.

    Attributes:
        level: leading dots.
        module: dotted name after the dots.
        attr: the imported attribute; None for the module itself.
    """

    level: int
    module: str
    attr: str | None = None


@dataclass(frozen=True)
class Statement:
    """A top-level statement of a file, with the names that it binds."""

    path: str
    index: int
    node: Node
    names: frozenset[str]


class SourceFile:
    """The top-level bindings of one file.

    Attributes:
        root: the syntax tree.
        imports: name -> what its import statement names.
        stars: modules imported with ``*``.
        loaded: what is imported by its dotted name.
        definitions: name -> the statements that bind it.
        absent: names of optional libraries, unbound when those are not installed.
        future_annotations: whether annotations stay unevaluated.

    Args:
        path: where the file stands in its artifact.
        text: its content.
        available: whether an imported module can be had; decides which branch of a
            ``try: import …`` stands for the file.
        environment: decides which branch of an ``if`` does.

    Raises:
        SyntaxError: the file does not parse; ``lineno`` is set.
    """

    def __init__(
        self,
        path: str,
        text: str,
        available: Callable[[Import], bool],
        environment: Environment,
    ) -> None:
        self.path = path
        self.imports: dict[str, Import] = {}
        self.stars: list[Import] = []
        self.loaded: set[str] = set()
        self.absent: set[str] = set()
        self.definitions: dict[str, list[Statement]] = {}
        self.future_annotations = False
        self._available = available
        self._environment = environment
        self.root = parse(text)
        for index, node in enumerate(self._flatten(self.root)):
            self._bind(index, node)

    def _flatten(self, block: Node) -> Iterator[Node]:
        """Yield the statements that run when no external library is installed."""
        for node in block.named_children:
            if node.type == "if_statement" and (branch := self._branch(node)) is not None:
                yield from self._flatten(branch) if branch != node else ()
            elif node.type == "try_statement" and self._may_fail(node):
                yield from self._flatten_try(node)
            elif node.type != "comment":
                yield node

    def _branch(self, node: Node) -> Node | None:
        """Return the block of an ``if`` that runs.

        Returns:
            The ``if`` itself where no block of it runs, None where that cannot be known.
        """
        clauses = [node, *node.children_by_field_name("alternative")]
        for clause in clauses:
            condition = clause.child_by_field_name("condition")
            truth = True if condition is None else self._environment.truth(condition)
            if truth is None and self._environment.decides:
                # Where imports differ by version, the first ones are the recent version's.
                truth = bool(_imported(_body(clause))) or None
            if truth is None:
                return None
            if truth:
                return _body(clause)
        return node

    def _is_outside(self, found: Import) -> bool:
        return bool(found.level) or not self._environment.is_allowed(found.module)

    def _may_fail(self, node: Node) -> bool:
        """Whether what a ``try`` binds depends on a library that is not plainly there."""
        if any(self._is_outside(found) for found in _imported(node)):
            return True
        handlers = (child for child in node.named_children if child.type == "except_clause")
        spelt_otherwise = any(_imported(_body(handler)) for handler in handlers)
        return self._environment.decides and not spelt_otherwise and bool(_imported(node))

    def _flatten_try(self, node: Node) -> Iterator[Node]:
        body = _body(node)
        usable = all(self._available(found) for found in _imported(body))
        clauses = {child.type: child for child in reversed(node.named_children)}
        branch = ["else_clause"] if usable else ["except_clause"]
        if usable:
            yield from self._flatten(body)
        else:
            self.absent |= _bound_names(node)
        for name in [*branch, "finally_clause"]:
            if name in clauses:
                yield from self._flatten(_body(clauses[name]))

    def _bind(self, index: int, node: Node) -> None:
        if node.type == "future_import_statement":
            self.future_annotations |= "annotations" in source_of(node)
            return
        if node.type in ("import_statement", "import_from_statement"):
            for name, found in read_import(node):
                if name == "*":
                    self.stars.append(found)
                else:
                    self.imports[name] = found
            self.loaded |= {source_of(child) for child in node.children_by_field_name("name")}
            return
        statement = Statement(self.path, index, node, _bound_names(node))
        for name in statement.names:
            self.definitions.setdefault(name, []).append(statement)

    def class_statement(self, name: str) -> Statement | None:
        """Return the last class statement that binds ``name``."""
        for statement in reversed(self.definitions.get(name, [])):
            node = undecorated(statement.node)
            if node.type == "class_definition" and text_at(node, "name") == name:
                return statement
        return None


def parse(text: str) -> Node:
    """Return the syntax tree of a file.

    Raises:
        SyntaxError: the text is no Python; ``lineno`` is the first bad line.
    """
    root = _PARSER.parse(text.encode()).root_node
    if root.has_error:
        raise SyntaxError("does not parse", ("", _first_error(root), None, None))
    return root


def _first_error(node: Node) -> int:
    for child in node.children:
        if child.has_error:
            return _first_error(child)
    return node.start_point[0] + 1


def source_of(node: Node) -> str:
    """Return the text of a node."""
    return (node.text or b"").decode()


def text_at(node: Node, field: str) -> str:
    """Return the text of a node's field; '' where it has no such field."""
    child = node.child_by_field_name(field)
    return source_of(child) if child is not None else ""


def items_at(node: Node, field: str) -> list[Node]:
    """Return what a node's field lists; nothing where it has no such field."""
    child = node.child_by_field_name(field)
    return child.named_children if child is not None else []


def is_attribute(node: Node) -> bool:
    """Whether an identifier is the ``b`` of ``a.b``."""
    parent = node.parent
    return parent is not None and parent.child_by_field_name("attribute") == node


def has_default(parameter: Node) -> bool:
    """Whether an item of a parameter list has a default."""
    return parameter.type in ("default_parameter", "typed_default_parameter")


def undecorated(node: Node) -> Node:
    """Return the class or function of a decorated definition, or the node itself."""
    return node.child_by_field_name("definition") or node


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it, in source order."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(top.children))


def read_import(node: Node) -> Iterator[tuple[str, Import]]:
    """Yield each name that an import statement binds (``*`` for a star import)."""
    level, module = 0, ""
    source = node.child_by_field_name("module_name")
    if source is not None:
        dotted = source_of(source)
        module = dotted.lstrip(".")
        level = len(dotted) - len(module)
        if any(child.type == "wildcard_import" for child in node.named_children):
            yield "*", Import(level, module)
    for item in node.children_by_field_name("name"):
        alias = text_at(item, "alias")
        name = text_at(item, "name") if alias else source_of(item)
        if source is not None:
            yield alias or name, Import(level, module, name)
        elif alias:
            yield alias, Import(0, name)
        else:
            head = name.partition(".")[0]
            yield head, Import(0, head)


def dedented(node: Node, edits: dict[tuple[int, int], str] | None = None) -> str:
    """Return a statement's text with edits applied, moved to the left margin.

    Args:
        edits: byte range in the file -> new text; a range inside another one is ignored.
    """
    data, start = node.text or b"", node.start_byte
    parts: list[bytes] = []
    position = 0
    for (first, last), new in sorted((edits or {}).items(), key=lambda e: (e[0][0], -e[0][1])):
        if first - start < position:
            continue
        parts += [data[position : first - start], new.encode()]
        position = last - start
    text = b"".join([*parts, data[position:]]).decode()
    margin = " " * node.start_point[1]
    return "\n".join(line.removeprefix(margin) for line in text.split("\n"))


def scopes(text: str) -> tuple[set[str], set[str]]:
    """Return the names that a statement reads from outside, and those bound in inner scopes.

    Raises:
        SyntaxError: the text is no Python.
    """
    top = symtable.symtable(text, "<statement>", "exec")
    free = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    local: set[str] = set()
    stack = list(top.get_children())
    while stack:
        table = stack.pop()
        stack.extend(table.get_children())
        for symbol in table.get_symbols():
            if symbol.is_global():
                free.add(symbol.get_name())
            elif symbol.is_local() or symbol.is_parameter():
                local.add(symbol.get_name())
    return free, local


def _bound_names(node: Node) -> frozenset[str]:
    """Return the names that a statement binds in its own scope.

    Raises:
        SyntaxError: the statement is no Python.
    """
    table = symtable.symtable(dedented(node), "<statement>", "exec")
    names = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    if node.type == "expression_statement" and node.named_children[0].type == "assignment":
        left = node.named_children[0].child_by_field_name("left")
        while left is not None and left.type in ("attribute", "subscript"):
            left = left.named_children[0]  # `Foo.x = …` completes what `Foo` is
        if left is not None and left.type == "identifier":
            names.add(source_of(left))
    return frozenset(names)


def imports_in(node: Node) -> Iterator[tuple[str, Import]]:
    """Yield each name that import statements in a node bind, and what it names."""
    for inner in walk(node):
        if inner.type in ("import_statement", "import_from_statement"):
            yield from read_import(inner)


def _imported(node: Node) -> list[Import]:
    return [found for _, found in imports_in(node)]


def _body(node: Node) -> Node:
    for child in node.named_children:
        if child.type == "block":
            return child
    return node
