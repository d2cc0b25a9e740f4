"""What a kernel is called, and what its docstring says that it computes, in the reference's words.

Of the expressions that a kernel's nodes lie in, the largest that it computes all of are told.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from curate.generator.words import Enclosing, NodeNote, is_view, operation, told_note
from curate.syntax import words

_MOVES = {torch.ops.aten.clone.default, torch.ops.aten._unsafe_view.default}
_MOVING = (
    *("cat", "stack", "constant_pad", "reflection_pad", "replication_pad", "flip", "roll", "index"),
    *("gather", "take", "embedding", "repeat", "upsample_nearest", "pixel_", "channel_shuffle"),
    *("slice_scatter", "select_scatter", "sort"),
)
"""How the names of operators begin that put numbers in other places."""

_LONGEST_FORMULA, _LONGEST_STATEMENT = 160, 80


@dataclass
class SourcePiece:
    """An expression of the reference that a kernel computes, or takes a gradient back through.

    Attributes:
        notes: those of its nodes.
        depth: its place among the steps of each.
        is_whole: whether the kernel computes all of it.
    """

    notes: list[NodeNote]
    depth: int
    is_whole: bool

    @property
    def step(self) -> Enclosing:
        return self.notes[0].steps[self.depth]

    @property
    def is_gradient(self) -> bool:
        return self.notes[0].is_gradient

    @property
    def assigned(self) -> str:
        """The variable that gets the result, or ""."""
        return "" if self.is_gradient else self.notes[-1].assigned

    @property
    def calls(self) -> list[str]:
        """Functions that are called in it, those of an expression innermost first."""
        return [
            step.word
            for note in self.notes
            for step in reversed(note.steps[self.depth :])
            if step.word
        ]

    @property
    def around(self) -> list[str]:
        """The function that has an expression in which at most one is called, if not forward."""
        around = [step.word for step in self.notes[0].steps[: self.depth] if step.word][-1:]
        return around if len(set(self.calls)) <= 1 else []

    @property
    def text(self) -> str:
        of = self.step.of
        text = f"{self.step.where} ({of})" if isinstance(of, str) else _said(of)
        return f"{'' if self.is_whole else 'part of '}{text}"


def pieces(nodes: Sequence[torch.fx.Node]) -> list[SourcePiece]:
    """Return what some nodes of a graph compute, in the order in which it is known."""
    notes = [told_note(node) for node in nodes if _computes(node)]
    notes = [note for note in notes if note.steps] or [
        note for node in nodes if (note := told_note(node)).steps
    ]
    graph = nodes[0].graph if nodes else torch.fx.Graph()
    total, own = _totals(graph, len(graph.nodes)), _count(notes)
    found: dict[tuple[bool, Enclosing], SourcePiece] = {}
    for note in notes:
        keys = [(note.is_gradient, step) for step in note.steps]
        whole = (depth for depth, key in enumerate(keys) if own[key] >= total[key])
        depth = next(whole, -1)
        piece = found.pop(keys[depth], SourcePiece([], depth % len(keys), depth >= 0))
        piece.notes.append(note)
        found[keys[depth]] = piece
    return list(found.values())


def _computes(node: torch.fx.Node) -> bool:
    """Whether a node computes numbers from others; not where they lie, or a size."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target in _MOVES:
        return False
    is_tensor = isinstance(node.meta.get("val"), torch.Tensor | tuple | list)
    return is_tensor and not is_view(node) and bool(node.all_input_nodes)


def moves(node: torch.fx.Node) -> bool:
    """Whether all that a node does to numbers is to put them in other places."""
    return operation([node]).startswith(_MOVING)


def _count(notes: Iterable[NodeNote]) -> Counter[tuple[bool, Enclosing]]:
    return Counter((note.is_gradient, step) for note in notes for step in note.steps)


@functools.lru_cache(maxsize=1)
def _totals(graph: torch.fx.Graph, size: int) -> Counter[tuple[bool, Enclosing]]:
    """Return how many of a graph's nodes each step has; ``size`` tells that the graph changed."""
    return _count(told_note(node) for node in graph.nodes if _computes(node))


def _said(part: ast.stmt | ast.expr) -> str:
    """Return what an expression computes, with the name that this gets if it is one."""
    named = isinstance(part, ast.AugAssign) or (
        isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name)
    )
    said = part if named else getattr(part, "value", part)
    call = said.value if isinstance(said, ast.Subscript) else said
    if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch.autograd.grad":
        return f"the gradient{'s' * (said is call)} of {ast.unparse(call.args[0])}"
    return ast.unparse(said)


def _joined(told: Iterable[SourcePiece]) -> str:
    """Return what some pieces compute, with what each is a part of."""
    parts = []
    for where, group in itertools.groupby(told, lambda p: p.step.where):
        one = list(group)
        text = "; ".join(dict.fromkeys(piece.text for piece in one))
        inside = where and not isinstance(one[0].step.of, str)
        parts.append(f"{text} in {where}" if inside else text)
    return "; ".join(parts)


def sentence(found: Sequence[SourcePiece], results: Sequence[str] = ()) -> str:
    """Return a sentence that says what some pieces compute; ``results`` where that is long."""
    told = {True: list[SourcePiece](), False: list[SourcePiece]()}
    for piece in found:
        told[piece.is_gradient].append(piece)
    texts = _joined(told[False]), _joined(told[True])
    if not _fits("; ".join(filter(None, texts)), _LONGEST_FORMULA):
        texts = _names(told[False], results), _names(told[True], ())
    verbs = [f"compute {texts[0]}"] * bool(texts[0])
    verbs += [f"backpropagate through {texts[1]}"] * bool(texts[1])
    said = "; ".join(verbs) or "compute what later kernels read"
    return f"{said[0].upper()}{said[1:]}."


def _names(told: Sequence[SourcePiece], results: Sequence[str]) -> str:
    """Return words for what some pieces compute: ``results``, or functions."""
    calls = dict.fromkeys(call for piece in told for call in piece.calls)
    names = list(results) or list(calls) or [piece.assigned for piece in told if piece.assigned]
    names = names if len(names) <= 5 else [*names[:4], "more"]
    text = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    inside = {piece.step.where for piece in told}
    return f"{text} in {inside.pop()}" if text and len(inside) == 1 and all(inside) else text


def parts(found: Sequence[SourcePiece]) -> str:
    """Return what some pieces compute parts of, or the last if that is long; "" if it is, too."""
    for told, most in ((found, _LONGEST_FORMULA), (found[-1:], _LONGEST_STATEMENT)):
        text = _joined(replace(piece, is_whole=True) for piece in told)
        kinds = {piece.is_gradient for piece in told}
        if len(kinds) == 1 and _fits(text, most):
            return f"{'the gradient through ' * kinds.pop()}{text}"
    return ""


def _fits(code: str, most: int) -> bool:
    """Whether a docstring can have a piece of the reference in it."""
    return 0 < len(code) <= most and '"' not in code


def wrapped(first: str, rest: str) -> str:
    """Return a kernel's docstring: a sentence, and a paragraph."""
    told = "\n    ".join(textwrap.wrap(first, 93, initial_indent="   ")).strip()
    return f"{told}\n\n    {rest}\n    "


# --- names ---------------------------------------------------------------------------------------

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
_PRODUCTS = {"matmul", "convolution"}
_UNTOLD = re.compile(r"[a-z]|(\w+_)?(out|output|result|res|ret|input|tensor)s?\d*|[a-z]\d+")


def tells(word: str) -> bool:
    """Whether a variable's name says what it is."""
    return bool(word) and (word in ("q", "k", "v") or not _UNTOLD.fullmatch(word))


def title(found: Sequence[SourcePiece], given: Collection[str], verb: str) -> str:
    """Return a word or two for what some pieces compute: functions, or the name of a result.

    Names of forward's inputs say nothing. A product that no function computes is the ``verb``.
    """
    order: dict[str, int] = {}
    named, named_at = "", 0
    own: set[str] = set()  # functions of the reference itself
    for at, piece in enumerate(found):
        for call in [*piece.calls, *piece.around]:
            order.setdefault(call, at)
        own |= {*piece.around, *(call for note in piece.notes for call in note.calls[1:])}
        word = piece.assigned
        if word and not _UNTOLD.fullmatch(word) and word not in given:
            named, named_at = word, at
    if named:
        order.setdefault(named, named_at)
    elif not any(piece.calls for piece in found) and verb in _PRODUCTS:
        order.setdefault(verb, len(found))

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
    best.sort(key=lambda word: order[word])
    return "_".join([*best, *["grad"] * any(piece.is_gradient for piece in found)])
