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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType, ModuleType

import torch

from curate.problem.problem import attribute_path
from curate.syntax import arguments, stores_in, words

NOTE = "reference"
"""The key of a node's ``meta`` under which a `NodeNote` lies."""

Note = Callable[[torch.fx.Node, FrameType | None], None]
"""Notes where a node is made: in a frame."""

Span = tuple[int | None, int | None, int | None, int | None]
"""First and last line, first and last column, as code objects have them."""

_FUNCTIONAL = torch.nn.functional.__file__
_MODULES = torch.nn.modules.__file__.removesuffix("__init__.py")

_CONVERSIONS = words(
    "to type type_as float double half long int bool contiguous clone view reshape expand flatten "
    "detach item forward __call__ size tensor arange zeros ones full zeros_like ones_like "
    "full_like unsqueeze squeeze permute transpose"
)
"""Functions that say nothing of what is computed."""


_KEEPING = words("to float half bfloat16 bool abs sigmoid softmax requires_grad_")
"""Methods whose results have the dimensions of what they are called on."""


@dataclass(frozen=True)
class Enclosing:
    """One of the expressions that a node lies in, or a module of PyTorch's.

    Attributes:
        run: tells one run of a function from another.
        of: the expression or statement; the class, for a module of PyTorch's.
        where: the module or function that has the expression, "" for forward; that module itself.
        word: the function called there, or "".
    """

    run: int
    of: ast.stmt | ast.expr | str
    where: str
    word: str = field(default="", compare=False)


@dataclass
class NodeNote:
    """Where in the reference a node is made.

    Attributes:
        place: the expression, for each of the functions that run, innermost first.
        steps: all that the node is a part of, a statement of forward first.
        assigned: the variable that gets the value, or "".
        is_gradient: whether the node takes a gradient back through these steps.
        word: a name for the node's value; "" for all but the last node of an expression.
    """

    place: tuple[tuple[int, int], ...] = ()
    steps: tuple[Enclosing, ...] = ()
    assigned: str = ""
    is_gradient: bool = False
    word: str = ""

    @property
    def calls(self) -> list[str]:
        """Functions called there, innermost first."""
        return [step.word for step in reversed(self.steps) if step.word]


def note_of(node: torch.fx.Node) -> NodeNote:
    """Return a node's note; an empty one where the reference did not make it."""
    found: NodeNote = node.meta.get(NOTE) or NodeNote()
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


def _inputs(tree: ast.Module) -> list[ast.expr]:
    """Return the expressions that get_inputs returns."""
    for item in tree.body:
        if isinstance(item, ast.FunctionDef) and item.name == "get_inputs":
            last = item.body[-1]
            if isinstance(last, ast.Return) and isinstance(last.value, ast.List | ast.Tuple):
                return last.value.elts
    return []


def _dims(value: ast.expr) -> list[ast.expr]:
    """Return the dimensions of a tensor that an expression draws; none if it is no plain draw."""
    while isinstance(value, ast.Call | ast.BinOp):
        if isinstance(value, ast.BinOp):
            value = value.left
        elif re.fullmatch(r"torch\.(randn?|randint|zeros|ones)", ast.unparse(value.func)):
            shapes = [a.elts for a in value.args if isinstance(a, ast.Tuple | ast.List)]
            return shapes[-1] if shapes else value.args
        elif isinstance(value.func, ast.Attribute) and value.func.attr in _KEEPING:
            value = value.func.value
        else:
            break
    return []


class Words:
    """The places of a reference's text that give names.

    Args:
        source: the text.
        filename: what code objects say of it.

    Attributes:
        sizes: what forward calls the dimensions of its inputs, by input and dimension.
        drawn: what get_inputs calls them, where no two of an input have one name.
    """

    def __init__(self, source: str, filename: str) -> None:
        self.filename = filename
        self._names: dict[Span, str] = {}
        self._returns: set[Span] = set()
        self._calls: dict[Span, str] = {}
        self._chains: dict[Span, tuple[ast.stmt | ast.expr, ...]] = {}
        self._spans: dict[tuple[CodeType, int], Span] = {}
        self._paths: dict[int, str] = {}
        self._runs: dict[FrameType, tuple[int, str]] = {}
        self._made: dict[int, NodeNote] = {}
        self._returned: ast.expr | None = None
        tree = ast.parse(source)
        self._find_chains(tree, ())
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                whole = node.value if isinstance(node, ast.Assign) else node
                pairs: list[tuple[ast.expr, ast.expr | ast.stmt]] = [(target, whole)]
                if isinstance(target, ast.Tuple) and isinstance(whole, ast.Tuple):
                    pairs = list(zip(target.elts, whole.elts, strict=False))
                self._names |= {_span(v): t.id for t, v in pairs if isinstance(t, ast.Name)}
            elif isinstance(node, ast.Return) and node.value:
                self._returns.add(_span(node.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                function = node.func
                word = function.attr if isinstance(function, ast.Attribute) else function.id
                self._calls[_span(node)] = word

        self.sizes: dict[tuple[str, int], str] = {}
        self.drawn: dict[tuple[str, int], str] = {}
        drawn = _inputs(tree)
        models = [c for c in tree.body if isinstance(c, ast.ClassDef) and c.name == "Model"]
        for item in (item for model in models for item in model.body):
            if isinstance(item, ast.FunctionDef) and item.name == "forward":
                returned = [n for n in ast.walk(item) if isinstance(n, ast.Return)][-1:]
                self._returned = returned[0].value if returned else None
                self._find_sizes(item)
                for argument, value in zip(arguments(item)[1:], drawn, strict=False):
                    dims = [ast.unparse(dim) for dim in _dims(value)]
                    for at, word in enumerate(dims):
                        if word.isidentifier() and dims.count(word) == 1:
                            self.drawn[argument.arg, at] = word
                            self.drawn[argument.arg, at - len(dims)] = word

    def _find_chains(self, tree: ast.AST, above: tuple[ast.stmt | ast.expr, ...]) -> None:
        """Note for each expression the statement and the expressions that it is a part of."""
        if isinstance(tree, ast.Assign | ast.AugAssign | ast.Return | ast.Expr):
            above = (tree,)
        elif isinstance(tree, ast.Call | ast.BinOp | ast.UnaryOp | ast.Compare) and above:
            above = (*above, tree)
        if isinstance(tree, ast.expr | ast.AugAssign):
            self._chains[_span(tree)] = above
        for node in ast.iter_child_nodes(tree):
            self._find_chains(node, above)

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

    def results(self, model: torch.nn.Module) -> list[str]:
        """Return names for what forward returns, "" for an expression; none for a single one."""
        value = self._returned
        if isinstance(value, ast.Tuple):
            return [getattr(item, "id", "") for item in value.elts]
        call = value.value if isinstance(value, ast.Subscript) else value
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "torch.autograd.grad":
            return []
        wanted = call.args[1]
        names: list[str] = []
        for item in wanted.elts if isinstance(wanted, ast.Tuple) else [wanted]:
            owner = re.fullmatch(r"\*self\.?(.*)\.parameters\(\)", ast.unparse(item))
            if owner:
                paths = [path for path, _ in model.get_submodule(owner[1]).named_parameters()]
                names += ["_".join(re.findall(r"[A-Za-z_]\w*", path)[-2:]) for path in paths]
            else:
                names.append(ast.unparse(item).rpartition(".")[2])
        return [f"{name}_grad" if name.isidentifier() else "" for name in names]

    @contextmanager
    def noting(self, model: torch.nn.Module) -> Iterator[Note]:
        """Give a function that notes in a node's ``meta`` where the reference makes it.

        It keeps the frames that run, as another may come to lie where one was.
        """
        self._paths = {id(module): path for path, module in model.named_modules()}
        try:
            yield self._note
        finally:
            self._runs, self._made = {}, {}

    def _note(self, node: torch.fx.Node, frame: FrameType | None) -> None:
        note = self._read(frame)
        backward = torch._C._current_autograd_node()
        made = self._made.get(backward._sequence_nr()) if backward else None
        if made:
            place = (*made.place, (backward._sequence_nr(), -1))
            word = next(iter(made.calls), "") or _verb(_snake(backward.name().partition("Back")[0]))
            note = replace(made, place=place, assigned=f"{word}_grad", is_gradient=True)
        else:
            self._made.setdefault(torch.autograd._get_sequence_nr() - 1, note)
        node.meta[NOTE] = note

    def _read(self, frame: FrameType | None) -> NodeNote:
        """Return the note of a node that is made in a frame."""
        note, inner, is_whole = NodeNote(), "", True
        place: list[tuple[int, int]] = []
        steps: list[Enclosing] = []  # innermost first
        while frame is not None:
            code = frame.f_code
            if code.co_filename == _FUNCTIONAL:
                inner = code.co_name
            elif code.co_filename == self.filename and code.co_name != "<module>":
                span = self._span_of(code, frame.f_lasti)
                word = (inner or self._calls.get(span, "")).strip("_").lower()
                inner = ""
                run, where = self._run(frame)
                chain = [Enclosing(run, part, where) for part in self._chains.get(span, ())]
                if chain and word not in _CONVERSIONS:
                    chain[-1] = replace(chain[-1], word=word)
                steps += reversed(chain)
                place.append((id(frame), frame.f_lasti))
                if is_whole:
                    note.assigned = self._names.get(span, "")
                    is_whole = not note.assigned and span in self._returns
            elif code.co_name == "forward" and code.co_filename.startswith(_MODULES):
                if steps and isinstance(steps[-1].of, str):  # in a container
                    steps[-1] = replace(steps[-1], word=inner or _snake(steps[-1].of))
                    inner = ""
                run, where = self._run(frame)
                steps += (
                    [Enclosing(run, type(frame.f_locals["self"]).__name__, where)] if where else []
                )
            frame = frame.f_back
        note.place, note.steps = tuple(place), tuple(reversed(steps))
        return note

    def _run(self, frame: FrameType) -> tuple[int, str]:
        """Return a number for a frame, and what runs there: a path, or a function's name."""
        if frame not in self._runs:
            name = frame.f_code.co_name
            arguments = frame.f_code.co_varnames[:1]
            path = self._paths.get(id(frame.f_locals[arguments[0]])) if arguments else None
            where = name
            if path is not None:
                where = attribute_path(path).removeprefix("self").removeprefix(".")
                where = ".".join(filter(None, [where, "" if name == "forward" else name]))
            self._runs[frame] = len(self._runs), where
        return self._runs[frame]

    def _span_of(self, code: CodeType, instruction: int) -> Span:
        key = code, instruction
        if key not in self._spans:
            positions = itertools.islice(code.co_positions(), instruction // 2, None)
            self._spans[key] = next(positions)
        return self._spans[key]


def source_of(module: ModuleType) -> str:
    """Return the text of a reference that was run as a module."""
    return "".join(linecache.getlines(module.__file__ or ""))


def words_of(module: ModuleType) -> Words:
    """Return the words of a reference that was run as a module."""
    return _words(source_of(module), module.__file__ or "")


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


_VERBS = {"mul": "scale", "sub": "subtract", "div": "divide", "mm": "matmul", "bmm": "matmul"}
_VERBS |= {"clone": "copy"}


def operation(nodes: Sequence[torch.fx.Node]) -> str:
    """Return a verb for the last thing that some nodes compute, as operators have no words."""
    computing = [n for n in nodes if isinstance(n.target, torch._ops.OpOverload) and not is_view(n)]
    return _verb(str(computing[-1].target).split(".")[1]) if computing else "copy"


def _verb(name: str) -> str:
    name = name.strip("_")
    return _VERBS.get(name, name)


def _snake(name: str) -> str:
    """Return a class's name as that of a function: ``layer_norm`` for ``LayerNorm``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
