"""Put a kernel's statements in order, as its author would on a second reading."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from curate.generator.text.expressions import unused
from curate.generator.text.layout import WIDTH, Block, blocks, body, comment, expression
from curate.generator.text.operations import NOUNS
from curate.syntax import loads_in, names_in, stores_in


def tidy(kernel: str) -> ast.FunctionDef:
    """Return a kernel without what nothing reads, and with one name for what it has twice."""
    function = ast.parse(kernel).body[0]
    assert isinstance(function, ast.FunctionDef)
    _Plain().visit(function)
    _drop_casts(function)
    _drop_unread(function)
    _say_once(function)
    _share(function.body, frozenset(argument.arg for argument in function.args.args))
    _reuse_names(function.body)
    _number_anew(function)
    return function


def printed(function: ast.FunctionDef) -> str:
    """Return a kernel's text, broken into lines; its first statement is its docstring."""
    doc = ast.get_docstring(function, clean=False)
    head = f"def {function.name}({ast.unparse(function.args)}):"
    if len(head) > WIDTH:
        arguments = ",\n".join(
            f"    {a.arg}{': ' + ast.unparse(a.annotation) if a.annotation else ''}"
            for a in function.args.args
        )
        head = f"def {function.name}(\n{arguments},\n):"
    decorators = [line for one in function.decorator_list for line in expression(one, 0, "@", "")]
    return "\n".join([*decorators, head, f'    """{doc}"""', *body(function.body[1:], 4)])


class _Plain(ast.NodeTransformer):
    """Takes out what changes no offset: factors of one and terms of zero."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        left, right = (
            n.value if isinstance(n, ast.Constant) else None for n in (node.left, node.right)
        )
        one, zero = (type(right) is int and right == n for n in (1, 0))
        if (one and isinstance(node.op, ast.Mult | ast.FloorDiv)) or (
            zero and isinstance(node.op, ast.Add | ast.Sub)
        ):
            return node.left
        if type(left) is int and left == 1 and isinstance(node.op, ast.Mult):
            return node.right
        return node


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name))


def _target(statement: ast.stmt) -> str | None:
    """Return the variable that a statement gives a value to."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return None


def _drop_unread(function: ast.FunctionDef) -> None:
    """Take out variables that nothing reads: the place along an axis that no address needs."""
    reads = Counter(loads_in(function))
    dropped = True
    while dropped:
        dropped = False
        for block in blocks(function):
            for statement in [s for s in block if (name := _target(s)) and not reads[name]]:
                reads -= Counter(loads_in(statement))
                block.remove(statement)
                dropped = True


def _drop_casts(function: ast.FunctionDef) -> None:
    """Take out what makes float32 of a number that is only moved: a store has its own type."""
    stored = set[ast.AST]()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.store":
            stored.add(node.args[1])
    reads = Counter(loads_in(function)) - Counter(n.id for n in stored if isinstance(n, ast.Name))
    moved = [pair for block in blocks(function) for pair in map(_as_float, block) if pair]
    loads = Counter(_target(statement) for statement, _ in moved)
    writes = Counter(stores_in(function))
    for statement, load in moved:
        name = _target(statement)
        if name and not reads[name] and writes[name] == loads[name]:
            statement.value = load


def _as_float(statement: ast.stmt) -> tuple[ast.Assign, ast.Call] | None:
    """Return a statement that makes float32 of what it loads, and the load."""
    match statement:
        case ast.Assign(value=ast.Call(ast.Attribute(ast.Call() as load, "to"), [kind], [])):
            if (ast.unparse(load.func), ast.unparse(kind)) == ("tl.load", "tl.float32"):
                return statement, load
    return None


def _say_once(function: ast.FunctionDef) -> None:
    """Take out comments that stand in the kernel already."""
    said = set[str]()
    for block in blocks(function):
        for statement in [s for s in block if comment(s)]:
            told = comment(statement)
            if told in said:
                block.remove(statement)
            said.add(told)


def without_unread(kernel: ast.FunctionDef) -> set[int]:
    """Take out a kernel's arguments that nothing reads, and return the places that they had."""
    read = set(loads_in(kernel))
    read |= {
        str(n.value)
        for d in kernel.decorator_list
        for n in ast.walk(d)
        if isinstance(n, ast.Constant)
    }
    gone = {
        at for at, a in enumerate(kernel.args.args) if a.annotation is None and a.arg not in read
    }
    kernel.args.args = [a for at, a in enumerate(kernel.args.args) if at not in gone]
    return gone


def without_unread_sizes(block: Block) -> Block:
    """Return a host function's statements without sizes that nothing reads."""
    reads = set(loads_in(*block))

    def is_size(statement: ast.stmt) -> bool:
        text = ast.unparse(statement)
        return bool(re.fullmatch(r"\w+ = \w+\.shape\[[^]]*\](\.numel\(\))?", text))

    return [s for s in block if not (is_size(s) and _target(s) not in reads)]


# --- what is written more than once ---------------------------------------------------------------


def said_once(block: Block) -> Block:
    """Return a host function's block without what it says again.

    What both branches of an ``if`` begin with stands in front of it; a variable is not given the
    value that it has; and a product has one name.
    """
    found: Block = []
    values: dict[str, tuple[str, set[str]]] = {}
    products: dict[str, str] = {}
    same: dict[str, str] = {}
    statements = _shared_first(block)
    given = Counter(stores_in(*statements))
    for statement in statements:
        for one in _names(statement):
            one.id = same.get(one.id, one.id)
        name = _target(statement)
        product = statement.value if isinstance(statement, ast.Assign) else None
        if name and given[name] == 1 and isinstance(product, ast.BinOp):
            known = products.setdefault(ast.unparse(product), name)
            if known != name:
                same[name] = known
                continue
        if name and values.get(name, ("",))[0] == ast.unparse(statement):
            continue
        changed = set(stores_in(statement))
        values = {n: v for n, v in values.items() if n not in changed and not v[1] & changed}
        if name and "torch." not in ast.unparse(statement):  # each tensor is another one
            values[name] = ast.unparse(statement), set(loads_in(statement))
        found.append(statement)
    return found


def _shared_first(block: Block) -> Block:
    """Return a block with what both branches of an ``if`` begin with in front of it."""
    found: Block = []
    for statement in block:
        if isinstance(statement, ast.If):
            body, other = statement.body, statement.orelse
            while len(body) > 1 and len(other) > 1 and ast.dump(body[0]) == ast.dump(other[0]):
                found.append(body.pop(0))
                other.pop(0)
        found.append(statement)
    return found


def _accesses(statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield a statement's loads and stores, without those of the statements inside it."""
    inside = statement.iter if isinstance(statement, ast.For) else statement
    for node in ast.walk(inside):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _ACCESSES:
            yield node


_ACCESSES = ("tl.load", "tl.store", "tl.atomic_add")


def _share(block: Block, outer: frozenset[str]) -> None:
    """Make variables of addresses and masks that a block has more than once.

    ``outer`` are names of the blocks around.
    """
    plain = [statement for statement in block if not isinstance(statement, ast.For | ast.If)]
    own = outer.union(names_in(*plain))
    for statement in block:
        if isinstance(statement, ast.For | ast.If):
            _share(statement.body, own)
    taken = set(own).union(names_in(*block))
    _share_bases(block, taken)
    uses: dict[str, list[tuple[int, ast.Call]]] = {}
    for at, statement in enumerate(block):
        for call in _accesses(statement):
            for part in (_offsets(call), _mask(call)):
                if isinstance(part, ast.BinOp):
                    uses.setdefault(ast.unparse(part), []).append((at, call))
    shared = [(text, found) for text, found in uses.items() if len(found) > 1]
    several = sum(_is_offsets(found[0][1], text) for text, found in shared) > 1
    new: list[tuple[int, ast.stmt]] = []
    for text, found in shared:
        call = found[0][1]
        word = "mask"
        if _is_offsets(call, text):
            pointer = ast.unparse(call.args[0].left)  # type: ignore[attr-defined]
            word = f"{pointer.removesuffix('_ptr')}_offsets" if several else "offsets"
        name = unused(word, taken)
        variable = ast.Name(name, ast.Load())
        for _, call in found:
            if _is_offsets(call, text):
                call.args[0].right = variable  # type: ignore[attr-defined]
            for keyword in call.keywords:
                if keyword.arg == "mask" and ast.unparse(keyword.value) == text:
                    keyword.value = variable
        new.append((found[0][0], ast.parse(f"{name} = {text}").body[0]))
    for at, statement in reversed(new):
        block.insert(at, statement)
    for statement in block:
        for call in _accesses(statement):
            call.args[0] = _flat(call.args[0])


_SAVED = 40
"""Characters that a variable for what addresses have in common is to save."""


def _share_bases(block: Block, taken: set[str]) -> None:
    """Make a variable of what several addresses in a tensor have in common: ``x_ptrs - width``."""
    groups: dict[str, list[tuple[Counter[str], list[tuple[int, ast.Call, Counter[str]]]]]] = {}
    for at, statement in enumerate(block):
        for call in _accesses(statement):
            offsets = _offsets(call)
            terms = Counter(_terms(offsets)) if offsets is not None else Counter[str]()
            pointer = ast.unparse(call.args[0]).partition(" ")[0]
            for common, found in groups.setdefault(pointer, []):
                if 2 * (common & terms).total() > max(2, terms.total()):
                    common &= terms
                    found.append((at, call, terms))
                    break
            else:
                groups[pointer].append((terms.copy(), [(at, call, terms)]))
    new: list[tuple[int, str]] = []
    for pointer, own in groups.items():
        for common, found in own:
            if not common:
                continue
            base = _sum(sorted(common.elements(), key=lambda term: term.startswith("-")))
            distinct = {ast.unparse(call.args[0]) for _, call, _ in found}
            if (len(distinct) - 1) * len(base) < _SAVED:
                continue
            name = unused(f"{pointer}s", taken)
            new.append((found[0][0], f"{name} = {pointer} + {base}"))
            for _, call, terms in found:
                rest = sorted((terms - common).elements(), key=lambda term: term[1:].isdigit())
                call.args[0] = ast.parse(_sum([name, *rest]), mode="eval").body
    for at, text in sorted(new, reverse=True):
        block.insert(at, ast.parse(text).body[0])


def _terms(offsets: ast.expr, sign: str = "+") -> Iterator[str]:
    """Yield the terms of a sum, each with its sign."""
    if isinstance(offsets, ast.BinOp) and isinstance(offsets.op, ast.Add | ast.Sub):
        yield from _terms(offsets.left, sign)
        turned = isinstance(offsets.op, ast.Sub) == (sign == "+")
        yield from _terms(offsets.right, "-" if turned else "+")
    else:
        yield sign + ast.unparse(offsets)


def _sum(terms: Iterable[str]) -> str:
    """Return the text of a sum of terms with signs."""
    first, *others = terms
    return " ".join([first.removeprefix("+"), *(f"{term[0]} {term[1:]}" for term in others)])


def _offsets(call: ast.Call) -> ast.expr | None:
    pointer = call.args[0]
    if isinstance(pointer, ast.BinOp) and isinstance(pointer.left, ast.Name):
        return pointer.right
    return None


def _is_offsets(call: ast.Call, text: str) -> bool:
    offsets = _offsets(call)
    return offsets is not None and ast.unparse(offsets) == text


def _mask(call: ast.Call) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == "mask"), None)


def _flat(pointer: ast.expr) -> ast.expr:
    """Return ``pointer + (a + b)`` without its brackets."""
    if isinstance(pointer, ast.BinOp) and isinstance(pointer.right, ast.BinOp):
        inner = pointer.right
        if isinstance(pointer.op, ast.Add) and isinstance(inner.op, ast.Add | ast.Sub):
            outer = _flat(ast.BinOp(pointer.left, ast.Add(), inner.left))
            return ast.BinOp(outer, inner.op, inner.right)
    return pointer


# --- names ----------------------------------------------------------------------------------------


def _reuse_names(block: Block, outer: frozenset[str] = frozenset()) -> None:
    """Give a value the name of one that it is made of and that is not needed any more: x, not x_1.

    Masks and what is named by its operation may follow one another under one name; any other value
    has its own. ``outer`` are the variables of the blocks around: a loop carries those that it
    changes.
    """
    holders: dict[str, list[str]] = {}
    own = outer.union(filter(None, map(_target, block)))
    names = [list(_names(statement)) for statement in block]
    last = {found.id: at for at, inside in enumerate(names) for found in inside}
    for at, statement in enumerate(block):
        if isinstance(statement, ast.For | ast.If):
            _reuse_names(statement.body, own)
        name = _target(statement)
        if name is None or name in outer:
            continue
        stem = re.sub(r"_\d+$", "", name)
        known = holders.setdefault(stem, [])
        reads = {found.id for found in names[at] if found.id != name}
        if stem in _SCRATCH and "tl.load(" not in ast.unparse(statement):
            reads.add(stem)
        old = next((one for one in known if last[one] <= at and one in reads), name)
        if old not in known:
            known.append(old)
        for found in (found for inside in names[at:] for found in inside):
            found.id = old if found.id == name else found.id
        last[old] = last[name]


_SCRATCH = {"mask", "clamped", *NOUNS.values()}


def _number_anew(function: ast.FunctionDef) -> None:
    """Take the number off a name that no other shares: first_1 where there is no first."""
    taken = {*names_in(function), *(a.arg for a in function.args.args)}
    short = {}
    for name in dict.fromkeys(stores_in(function)):
        stem = re.sub(r"_\d+$", "", name)
        if stem not in taken:
            taken.add(stem)
            short[name] = stem
    for found in _names(function):
        found.id = short.get(found.id, found.id)
