"""Words of the reference: what its author calls the values that the nodes of a graph make.

While a module is traced, each node's place in the reference is noted. The value of ``loss = …`` is
called ``loss``; what a function of the reference returns has the name that its caller gives it; a
value without a name has that of the function called, such as ``softmax``.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType

import torch

from curate.syntax import arguments, stores_in, words

NOTE = "reference"
"""The key of a node's ``meta`` under which a `NodeNote` lies."""

Span = tuple[int | None, int | None, int | None, int | None]
"""First and last line, first and last column, as code objects have them."""

_FUNCTIONAL = torch.nn.functional.__file__

_CONVERSIONS = words(
    "to type type_as float double half long int bool contiguous clone view reshape expand flatten "
    "detach item forward __call__ size tensor arange zeros ones full zeros_like ones_like "
    "full_like unsqueeze squeeze permute transpose"
)
"""Functions that say nothing of what is computed."""


@dataclass
class NodeNote:
    """Where in the reference a node is made.

    Attributes:
        place: the expression, for each of the functions that run.
        calls: functions called there, innermost first.
        assigned: the variable that gets the value, or "".
        line: the line of the outermost function.
        word: a name for the node's value; "" for all but the last node of an expression.
    """

    place: tuple[tuple[int, int], ...]
    calls: tuple[str, ...]
    assigned: str
    line: int
    word: str = ""


def note_of(node: torch.fx.Node) -> NodeNote:
    """Return a node's note; an empty one where the reference did not make it."""
    found: NodeNote = node.meta.get(NOTE) or NodeNote((), (), "", 0)
    return found


def told_note(node: torch.fx.Node) -> NodeNote:
    """Return a node's note, or that of what is made of it if a pass of the compiler put it in."""
    for _ in range(4):
        if note_of(node).place or not node.users:
            break
        node = next(iter(node.users))
    return note_of(node)


def is_view(node: torch.fx.Node) -> bool:
    """Whether a node only looks at a tensor in another way."""
    return bool(getattr(node.target, "is_view", False))


def _span(node: ast.expr | ast.stmt) -> Span:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


class Words:
    """The places of a reference's text that give names.

    Args:
        source: the text.
        filename: what code objects say of it.

    Attributes:
        results: the variables that forward returns, "" for other expressions, if there are several.
        sizes: what forward calls the dimensions of its inputs, by input and dimension.
    """

    def __init__(self, source: str, filename: str) -> None:
        self.filename = filename
        self._names: dict[Span, str] = {}
        self._returns: set[Span] = set()
        self._calls: dict[Span, str] = {}
        self._spans: dict[tuple[CodeType, int], Span] = {}
        self._statements: dict[int, ast.stmt] = {}
        self.results: list[str] = []
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name):
                    whole = node.value if isinstance(node, ast.Assign) else node
                    self._names[_span(whole)] = target.id
            elif isinstance(node, ast.Return) and node.value:
                self._returns.add(_span(node.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                function = node.func
                word = function.attr if isinstance(function, ast.Attribute) else function.id
                self._calls[_span(node)] = word
            if isinstance(node, ast.Assign | ast.AugAssign | ast.Return | ast.Expr):
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    self._statements[line] = node

        self.sizes: dict[tuple[str, int], str] = {}
        models = [c for c in tree.body if isinstance(c, ast.ClassDef) and c.name == "Model"]
        for item in (item for model in models for item in model.body):
            if isinstance(item, ast.FunctionDef) and item.name == "forward":
                last = item.body[-1]
                if isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple):
                    self.results = [getattr(item, "id", "") for item in last.value.elts]
                self._find_sizes(item)

    def _find_sizes(self, forward: ast.FunctionDef) -> None:
        """Note what forward calls the sizes of its inputs: ``b, c = x.shape``."""
        own = {argument.arg for argument in arguments(forward)}
        for statement in forward.body:
            if isinstance(statement, ast.Assign):
                source = ast.unparse(statement.value)
                found = re.fullmatch(r"(\w+)\.(?:shape|size\(\))(?:\[(-?\d+)\])?", source)
                found = found or re.fullmatch(r"(\w+)\.size\((-?\d+)\)", source)
                target = statement.targets[0]
                if found and found[1] in own and isinstance(target, ast.Name) and found[2]:
                    self.sizes[found[1], int(found[2])] = target.id.lower()
                elif found and found[1] in own and isinstance(target, ast.Tuple) and not found[2]:
                    for at, item in enumerate(target.elts):
                        word = item.id.strip("_").lower() if isinstance(item, ast.Name) else ""
                        for dim in (at, at - len(target.elts)) if word else ():
                            self.sizes[found[1], dim] = word
            own -= set(stores_in(statement))

    @property
    def speaks_of_sequences(self) -> bool:
        """Whether forward calls a dimension of its inputs the length of a sequence, or heads."""
        return any(re.search("seq|head", word) for word in self.sizes.values())

    def note(self, node: torch.fx.Node, frame: FrameType | None) -> None:
        """Note in a node's ``meta`` where the reference makes it."""
        functional, assigned, line = "", "", 0
        place: list[tuple[int, int]] = []
        calls: list[str] = []
        is_whole = True
        while frame is not None:
            code = frame.f_code
            if code.co_filename == _FUNCTIONAL:
                functional = code.co_name
            elif code.co_filename == self.filename and code.co_name != "<module>":
                span = self._span_of(code, frame.f_lasti)
                call = (functional or self._calls.get(span, "")).strip("_").lower()
                calls += [call] if call and call not in _CONVERSIONS else []
                functional = ""
                place.append((id(frame), frame.f_lasti))
                if is_whole:
                    assigned = self._names.get(span, "")
                    is_whole = not assigned and span in self._returns
                line = span[0] or 0
            frame = frame.f_back
        node.meta[NOTE] = NodeNote(tuple(place), tuple(calls), assigned, line)

    def _span_of(self, code: CodeType, instruction: int) -> Span:
        key = code, instruction
        if key not in self._spans:
            positions = itertools.islice(code.co_positions(), instruction // 2, None)
            self._spans[key] = next(positions)
        return self._spans[key]

    def formula(self, nodes: Sequence[torch.fx.Node], is_all: bool) -> str:
        """Return the statements that make some nodes of a graph; of some they may be a part.

        Of a graph that they are all of, they are all nodes.
        """
        graph = list(nodes[0].graph.nodes) if nodes else []
        nodes = graph if is_all else nodes
        own = set(nodes)
        notes = map(told_note, [node for node in nodes if not is_view(node)] or nodes)
        found = {id(s): s for note in notes if (s := self._statements.get(note.line))}
        partly = set()
        for node in graph:
            computes = isinstance(node.target, torch._ops.OpOverload) and not is_view(node)
            if computes and node not in own and node.all_input_nodes:
                partly.add(id(self._statements.get(note_of(node).line)))
        order = sorted(found.values(), key=lambda statement: statement.lineno)
        return "; ".join(f"{'part of ' * (id(s) in partly)}{_said(s)}" for s in order)

    def last(self, nodes: Sequence[torch.fx.Node]) -> str:
        """Return the statement that makes the last of some nodes of a graph; "" for none."""
        made = [s for node in nodes if (s := self._statements.get(told_note(node).line))]
        return _said(made[-1]) if made else ""


def _said(statement: ast.stmt) -> str:
    """Return a statement's text: what it computes, with the name that this gets if it is one."""
    named = isinstance(statement, ast.AugAssign) or (
        isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    )
    said = statement if named else getattr(statement, "value", statement)
    call = said.value if isinstance(said, ast.Subscript) else said
    if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch.autograd.grad":
        return f"the gradient{'s' * (said is call)} of {ast.unparse(call.args[0])}"
    return ast.unparse(said)


def words_of(module: ModuleType) -> Words:
    """Return the words of a reference that was run as a module."""
    filename = module.__file__ or ""
    return _words("".join(linecache.getlines(filename)), filename)


@functools.lru_cache(maxsize=1)
def _words(source: str, filename: str) -> Words:
    return Words(source, filename)


def settle(graph: torch.fx.Graph) -> None:
    """Leave the name of an expression to the last of the nodes that it has made."""
    later: tuple[tuple[int, int], ...] = ()
    for node in reversed(graph.nodes):
        note = note_of(node)
        if note.place and note.place != later:
            note.word = note.assigned or next(iter(note.calls), "")
        later = note.place


_LEADING = re.compile(
    "norm|softm|loss|entropy|similar|distance|pool|interpol|pad|score|divergence|logsumexp|rot"
    "|embed|attention|shuffle|glu|kl_div"
)
_REDUCTIONS = words("sum mean amax amin max min prod any all argmax argmin count_nonzero std var")
_SIMPLE = words(
    "add sub mul div square sqrt rsqrt abs exp log pow neg where clamp clamp_min clamp_max maximum "
    "minimum sign reciprocal masked_fill eq ne lt le gt ge sin cos cat stack chunk split log2 "
    "index_select gather lerp floor round"
)
_UNTOLD = re.compile(r"[a-z]|(\w+_)?(out|output|result|res|ret|input|tensor)s?\d*|[a-z]\d+")


def title(nodes: Sequence[torch.fx.Node], given: Collection[str]) -> str:
    """Return a word or two for what some nodes compute: functions, or the name of a result.

    Names of forward's inputs say nothing.
    """
    order: dict[str, int] = {}
    named, named_at = "", 0
    own: set[str] = set()  # functions of the reference itself
    for at, note in enumerate(told_note(node) for node in nodes if not is_view(node)):
        for call in note.calls:
            order.setdefault(call, at)
        own |= set(note.calls[1:])
        if note.assigned and not _UNTOLD.fullmatch(note.assigned) and note.assigned not in given:
            named, named_at = note.assigned, at
    if named:
        order.setdefault(named, named_at)

    def weight(word: str) -> int:
        if word == named or word in own:
            return 1
        if _LEADING.search(word):
            return 0
        return 2 if word in _REDUCTIONS else 4 if word in _SIMPLE else 3

    ranked = sorted(order, key=lambda word: (weight(word), order[word]))
    leads = bool(ranked) and weight(ranked[0]) == 0
    best = [w for w in ranked if weight(w) in ((0, 3) if leads else (1, 2, 3))][:2] or ranked[:2]
    if len(best) > 1 and (best[0] in best[1] or best[1] in best[0]):
        best = [max(best, key=len)]
    return "_".join(sorted(best, key=lambda word: order[word]))


_VERBS = {"mul": "scale", "sub": "subtract", "div": "divide", "mm": "matmul", "bmm": "matmul"}
_VERBS |= {"clone": "copy"}


def operation(nodes: Sequence[torch.fx.Node]) -> str:
    """Return a verb for the last thing that some nodes compute, as operators have no words."""
    computing = [n for n in nodes if isinstance(n.target, torch._ops.OpOverload) and not is_view(n)]
    names = [str(node.target).split(".")[1] for node in computing]
    name = names[-1].strip("_") if names else "copy"
    return _VERBS.get(name, name)
