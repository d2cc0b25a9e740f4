"""One top-level statement, cut out of its file so that it can stand in another."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tree_sitter import Node

from curate.harvest.python import einops, probes
from curate.harvest.python.jitted import (
    JIT,
    LAUNCHERS,
    called_name,
    decorator_name,
    dotted_target,
    is_jitted,
)
from curate.harvest.python.package import (
    Definition,
    External,
    Package,
    Submodule,
    Symbol,
    Target,
)
from curate.harvest.python.source import (
    Statement,
    dedented,
    imports_in,
    is_attribute,
    items_at,
    read_import,
    scopes,
    source_of,
    undecorated,
    walk,
)
from curate.harvest.python.substitutes import Substitute

KNOWN_NAMES = frozenset(dir(builtins)) | {"__name__", "__file__", "__class__", einops.LAYER_NAME}

_BOOKKEEPING = re.compile(
    r"register\w*|\w*doc(string)?s?\w*|deprecat\w*|typecheck(ed)?|beartype|jaxtyped|export\w*"
    r"|use_kernel\w*|use_experts_implementation|dynamic_rope_update|torch_compilable_check"
    r"|check_model_inputs|merge_with_config_defaults|capture_outputs|can_return_tuple"
    r"|maybe_allow_in_graph|apply_forward_hook|apply_lora_scale"
)
"""Decorators that file a class or check its use, and change nothing that it computes."""
_COMPILERS = ("torch.jit.", "torch.compile", "torch._dynamo.", "torch.fx.wrap")
"""Decorators that change how code runs, and nothing that it computes."""

Span = tuple[int, int]


@dataclass
class Fragment:
    """A statement and what it needs.

    Attributes:
        statement: where it stands.
        edits: byte range -> new text, for annotations and decorators that go.
        uses: byte range of a top-level name -> the name and what it stands for; in
            ``layers.Mlp`` with ``layers`` a file of the artifact, the range of both words.
        local: names bound in inner scopes, that a new name must not clash with.
        unresolved: names that nothing binds.
        nested: modules imported inside functions.
    """

    statement: Statement
    edits: dict[Span, str] = field(default_factory=dict)
    uses: dict[Span, tuple[str, Symbol]] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    unresolved: set[str] = field(default_factory=set)
    nested: set[str] = field(default_factory=set)


@lru_cache(maxsize=4096)
def cut(
    package: Package,
    statement: Statement,
    without: frozenset[str] = frozenset(),
    everywhere: bool = False,
) -> Fragment:
    """Return the statement without needless decorators and annotations, its names resolved.

    Args:
        package: where the statement stands.
        statement: what to cut out.
        without: decorators of kernels that go too, by their full names.
        everywhere: whether questions to the platform are answered in function bodies too.

    Raises:
        SyntaxError: the statement does not parse once edited.
    """
    fragment = Fragment(statement)
    path = statement.path

    def importable(name: str) -> bool:
        target = package.resolve(path, name)
        return isinstance(target, External) and package.environment.is_allowed(target.dotted)

    kernel_body = _kernel_body(package, statement)
    inner: dict[str, Target] = {}
    for node in walk(statement.node):
        asks = node.type in probes.ASKING and node.start_byte < kernel_body
        if node.type == "decorator" and _is_needless(package, path, node, without):
            following = node.next_sibling
            end = following.start_byte if following else node.end_byte
            fragment.edits[node.start_byte, end] = ""
        elif node.type == "type" and not all(
            name in KNOWN_NAMES or importable(name) for name in _heads(node)
        ):
            fragment.edits |= _without_annotation(node)
        elif asks and (answered := probes.answer(package, path, node, everywhere)):
            fragment.edits[node.start_byte, node.end_byte] = answered
        elif node.type == "call":
            fragment.edits |= _without_einops(package, path, node)
        elif node.type in _CLAUSES and (block := _block_of_absent(package, path, node)):
            fragment.edits[block.start_byte, block.end_byte] = "pass"
        elif node.type in ("import_statement", "import_from_statement") and not _is_edited(
            fragment, node.start_byte
        ):
            if found := _own_imports(package, path, node):
                fragment.edits[node.start_byte, node.end_byte] = "pass"
                inner |= found
            else:
                fragment.nested |= {"." * i.level + i.module for _, i in read_import(node)}
    free, fragment.local = scopes(dedented(statement.node, fragment.edits))
    _resolve_uses(fragment, package, (free | statement.names) - KNOWN_NAMES, inner)
    return fragment


def _own_imports(package: Package, path: str, node: Node) -> dict[str, Target]:
    """Return what an import inside a function brings from the artifact; none where not all is."""
    found = {name: package.follow(path, item, name) for name, item in read_import(node)}
    if any(not isinstance(target, Definition | Substitute) for target in found.values()):
        return {}
    clash = any(package.resolve(path, name) not in (None, found[name]) for name in found)
    return {} if clash else {name: target for name, target in found.items() if target is not None}


def _kernel_body(package: Package, statement: Statement) -> int:
    """Return where the body of a kernel begins; behind the statement where it is none."""
    body = undecorated(statement.node).child_by_field_name("body")
    if body is not None and is_jitted(package, statement.path, statement.node):
        return int(body.start_byte)
    return int(statement.node.end_byte)


def _resolve_uses(
    fragment: Fragment, package: Package, names: set[str], inner: Mapping[str, Target]
) -> None:
    """Note what each name stands for; ``inner`` says it of names that functions import."""
    path = fragment.statement.path
    targets = {name: inner.get(name) or package.resolve(path, name) for name in sorted(names)}
    absent = package.file(path).absent
    fragment.unresolved = {n for n, target in targets.items() if target is None and n not in absent}
    for node in walk(fragment.statement.node):
        name = source_of(node) if node.type == "identifier" else ""
        target = targets.get(name)
        start = node.start_byte
        if target is None or _is_label(node) or _is_edited(fragment, start):
            continue
        while isinstance(target, Submodule) and node.parent is not None:
            node = node.parent
            attr = node.child_by_field_name("attribute")
            target = package.resolve(target.path, source_of(attr)) if attr else None
        if target is None or isinstance(target, Submodule):
            fragment.unresolved.add(source_of(node))
        else:
            fragment.uses[start, node.end_byte] = (name, target)


_CLAUSES = ("if_statement", "elif_clause")
_AVAILABLE = re.compile(r"(\w+\.)*is_(?!(torch|torch_cuda|cuda|numpy)_available)\w+_available")


def _block_of_absent(package: Package, path: str, clause: Node) -> Node | None:
    """Return the block of an ``if`` that runs only with a library that no standalone file has."""
    condition = clause.child_by_field_name("condition")
    while condition is not None and condition.type == "boolean_operator":
        is_and = any(child.type == "and" for child in condition.children)
        condition = condition.named_children[0] if is_and else None
    block = clause.child_by_field_name("consequence")
    if condition is None or block is None or condition.type != "call":
        return None
    asked = called_name(condition)
    if not package.environment.substitutes or not _AVAILABLE.fullmatch(asked):
        return None
    imported = [found.module for _, found in imports_in(block) if not found.level]
    outside = any(not package.environment.is_allowed(module) for module in imported)
    is_known = isinstance(package.resolve(path, asked), Substitute)
    return block if outside or is_known else None


def _is_edited(fragment: Fragment, position: int) -> bool:
    return any(first <= position < last for first, last in fragment.edits)


def _is_label(node: Node) -> bool:
    """Whether an identifier is an attribute or a keyword, not a name that is looked up."""
    parent = node.parent
    if parent is not None and parent.type == "keyword_argument":
        return parent.child_by_field_name("name") == node
    return is_attribute(node)


def _heads(node: Node) -> set[str]:
    return {source_of(n) for n in walk(node) if n.type == "identifier" and not _is_label(n)}


def _without_annotation(node: Node) -> dict[Span, str]:
    """Return the edit that removes one annotation."""
    parent = node.parent
    before = node.prev_sibling
    if parent is None or before is None:
        return {}
    if parent.type == "assignment":  # in a dataclass the annotation makes the field
        return {(node.start_byte, node.end_byte): "object"}
    if parent.type in ("typed_parameter", "typed_default_parameter", "function_definition"):
        kept = before.prev_sibling  # what stands before the colon or the arrow
        if kept is not None:
            value = parent.child_by_field_name("value")
            joint = "=" if value is not None else ""
            end = value.start_byte if value is not None else node.end_byte
            return {(kept.end_byte, end): joint}
    return {}


def _without_einops(package: Package, path: str, call: Node) -> dict[Span, str]:
    """Return the edits that write an einops call as torch calls; none where it cannot be."""
    target = dotted_target(package, path, called_name(call))
    if target == einops.EINSUM:
        return _without_einsum(call)
    if target not in einops.FUNCTIONS | einops.LAYERS:
        return {}
    items = items_at(call, "arguments")
    is_layer = target in einops.LAYERS
    given = [source_of(item)[1:-1] for item in items if item.type == "string"]
    sizes = dict(source_of(i).split("=", 1) for i in items if i.type == "keyword_argument")
    sizes = {axis.strip(): length.strip() for axis, length in sizes.items()}
    known = package.file(path).definitions.keys() | package.file(path).imports.keys()
    plain = all(i.type in ("string", "keyword_argument") for i in items[not is_layer :])
    if not given or not plain or any(_heads(i) & known for i in items[not is_layer :]):
        return {}
    if is_layer:
        calls = einops.chain(given[0], {axis: axis for axis in sizes}, *given[1:2])
        bound = "".join(f", {axis}={length}" for axis, length in sizes.items())
        whole = (call.start_byte, call.end_byte)
        return (
            {whole: f"{einops.LAYER_NAME}(lambda x{bound}: x{calls})"} if calls is not None else {}
        )
    calls = einops.chain(given[0], sizes, *given[1:2])
    if calls is None:
        return {}
    tensor = items[0]
    opening, closing = ("", "") if tensor.type in _PRIMARY else ("(", ")")
    return {
        (call.start_byte, tensor.start_byte): opening,
        (tensor.end_byte, call.end_byte): closing + calls,
    }


def _without_einsum(call: Node) -> dict[Span, str]:
    """Return the edits of einops's einsum, whose equation comes last and has words for axes."""
    *tensors, last = items_at(call, "arguments")
    equation = einops.einsum_equation(source_of(last)[1:-1]) if last.type == "string" else None
    if equation is None or not tensors:
        return {}
    return {
        (call.start_byte, tensors[0].start_byte): f'torch.einsum("{equation}", ',
        (tensors[-1].end_byte, call.end_byte): ")",
    }


_PRIMARY = ("identifier", "attribute", "call", "subscript")


def _is_needless(package: Package, path: str, decorator: Node, without: frozenset[str]) -> bool:
    siblings = decorator.parent.named_children if decorator.parent else []
    names = [decorator_name(package, path, d) for d in siblings if d.type == "decorator"]
    if JIT in names:
        return decorator_name(package, path, decorator) not in LAUNCHERS - without
    called = source_of(decorator).lstrip("@ ").partition("(")[0].strip()
    head, _, rest = called.partition(".")
    target = package.resolve(path, head)
    if isinstance(target, External):
        dotted = f"{target.dotted}.{rest}" if rest else target.dotted
        if dotted.startswith(_COMPILERS):
            return True
        if dotted.startswith("torch.") or "." not in dotted:
            return False
    return _BOOKKEEPING.fullmatch(called.rpartition(".")[2]) is not None
