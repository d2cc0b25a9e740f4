"""The rules of `screen`: each is a function that yields the places where it fires."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from itertools import chain

from curate.verify.screen.program import (
    BUILTINS,
    COMPUTE,
    MODEL,
    Function,
    ParsedProgram,
    constant_getattr,
    last_name,
    names_in,
    test_of,
    text_of,
)

# Rules that look for names ---------------------------------------------------------------------


def uses(*names: str) -> Callable[[ParsedProgram], Iterator[ast.AST]]:
    """Return a rule that finds a name, anything below it, and its import.

    ``*.attribute`` stands for the attribute of any object.
    """
    full = tuple(name for name in names if not name.startswith("*."))
    below = tuple(f"{name}." for name in full)
    attributes = frozenset(name[2:] for name in names if name.startswith("*."))

    def find(program: ParsedProgram) -> Iterator[ast.AST]:
        for name, nodes in program.mentions.items():
            if name in full or name.startswith(below) or name.rpartition(".")[2] in attributes:
                yield from nodes

    return find


def patched(program: ParsedProgram) -> Iterator[tuple[ast.AST, str]]:
    """Yield every place that sets or deletes an attribute of an import, with its full name."""
    for node in program.nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            name = program.name(node)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            name = dictionary_owner(program, node.value)
        elif isinstance(node, ast.Call) and node.args:
            called = program.name(node.func)
            if called in ("setattr", "delattr"):
                owner = program.name(node.args[0])
                name = owner and f"{owner}.{text_of(node.args[1]) or '?'}"
            else:
                name = text_of(node.args[0]) if called == "unittest.mock.patch" else None
        else:
            name = None
        if name:
            yield node, name


def dictionary_owner(program: ParsedProgram, node: ast.expr) -> str | None:
    """Return a name in the module or class whose ``__dict__`` or ``vars()`` this is."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        owner = program.name(node.value)
    elif isinstance(node, ast.Call) and program.name(node.func) == "vars" and node.args:
        owner = program.name(node.args[0])
    else:
        owner = None
    return owner and f"{owner}.?"


LIBRARIES = ("torch", "triton", "numpy", "builtins", "time", "sys", "os", "gc", "inspect", "math")

SETTINGS = (
    "torch.backends.",
    "torch._dynamo.config.",
    "torch._inductor.config.",
    "torch.compiler.config.",
    "triton.knobs.",
    "sys.path",
    "os.environ",
)
"""Attributes that are there to be set."""

CLOCKS = ("time.", "torch.cuda.Event", "torch.cuda.synchronize", "triton.testing.")


def patches_library(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find attributes of libraries that are set, clocks left to `clock_patch`."""
    for node, name in patched(program):
        library = name.partition(".")[0] in LIBRARIES
        if library and not name.startswith(SETTINGS + CLOCKS + ("sys.modules",)):
            yield node


def clock_patch(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find clocks, events and timers that are set."""
    return (node for node, name in patched(program) if name.startswith(CLOCKS))


def sets_global_flag(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find settings of PyTorch and Triton that outlive the call."""
    settings = (node for node, name in patched(program) if name.startswith(SETTINGS[:-2]))
    return chain(settings, SET_FLAGS(program))


SET_FLAGS = uses(
    "torch.set_float32_matmul_precision",
    "torch.set_default_dtype",
    "torch.set_default_device",
    "torch.use_deterministic_algorithms",
)


def replaces_module(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find ``sys.modules[…] = …``, ``del sys.modules[…]`` and calls that change it."""
    for node in program.nodes:
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if program.name(node.value) == "sys.modules":
                yield node
        elif isinstance(node, ast.Call):
            owner, _, verb = (program.name(node.func) or "").rpartition(".")
            if owner == "sys.modules" and verb in ("update", "pop", "setdefault", "clear"):
                yield node


REFERENCE_MODULES = ("__main__", "reference", "curate", "kernelbench", "kernel_bench")


INSIDE = frozenset(
    {
        *("__subclasses__", "__base__", "__bases__", "__mro__", "__getattribute__"),
        *("__closure__", "cell_contents", "__globals__", "__code__", "__self__", "__func__"),
        *("__wrapped__", "__builtins__", "gi_frame", "cr_frame", "ag_frame", "tb_frame"),
    }
)
"""Attributes that lead from one object to others that it was not given."""


def reaches_inside(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find attributes of `INSIDE`, and strings that hold their names."""
    for node in ast.walk(program.tree):
        words = [getattr(node, "attr", "")]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = re.findall(r"\w+", node.value)
        if INSIDE & set(words):
            yield node


def reaches_modules(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find a judge's or a reference's module looked up, or ``sys.modules`` searched."""
    for node in program.nodes:
        parent = program.parents.get(node)
        if program.name(node) == "sys.modules" and not isinstance(parent, ast.Subscript):
            searched = isinstance(parent, ast.For | ast.comprehension)
            if searched or last_name(parent or node) in ("items", "values", "keys", "copy"):
                yield node
        elif isinstance(node, ast.Subscript | ast.Call):
            key = looked_up_module(program, node)
            if key in REFERENCE_MODULES:
                yield node


def looked_up_module(program: ParsedProgram, node: ast.Subscript | ast.Call) -> str | None:
    """Return the module's name in ``sys.modules["m"]``, ``.get("m")``, ``import_module("m")``."""
    if isinstance(node, ast.Subscript):
        return text_of(node.slice) if program.name(node.value) == "sys.modules" else None
    lookups = ("sys.modules.get", "importlib.import_module", "__import__")
    return text_of(node.args[0]) if node.args and program.name(node.func) in lookups else None


IMPORTS_REFERENCE = uses(*REFERENCE_MODULES)


def imports_reference(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find imports of the reference, of the main program or of the judge."""
    statements = (ast.Import, ast.ImportFrom)
    return (node for node in IMPORTS_REFERENCE(program) if isinstance(node, statements))


def pip_install(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find pip as a command line of a started process, and imports of pip."""
    yield from uses("pip")(program)
    for node in program.nodes:
        if isinstance(node, ast.Call) and (program.name(node.func) or "").startswith(
            ("subprocess.", "os.")
        ):
            words = " ".join(text_of(n) or "" for n in ast.walk(node)).split()
            if {"pip", "pip3", "uv"} & set(words) and "install" in words:
                yield node


EVALUATOR = re.compile(r"(POPCORN|KERNEL_?BENCH|KERNEL_?BOT|KERNEL_?GUARD|CURATE)_\w+")


def names_evaluator(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find literal names of evaluators' environment variables."""
    for node in program.nodes:
        if node not in program.docstrings and EVALUATOR.fullmatch(text_of(node) or ""):
            yield node


def persisting_l2(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find CUDA's names for a persisting L2 window, as identifiers or strings."""
    for node in program.nodes:
        word = last_name(node) or (text_of(node) if node not in program.docstrings else "") or ""
        if re.search(r"persistingl2|accesspolicywindow|persisting_l2", word.lower()):
            yield node


JUDGE = r"(grader|judge|reviewer|evaluator|verifier|llm|language model|ai (model|assistant))"
ADDRESS = re.compile(
    rf"(ignore|disregard|forget) (all |any |the )?(previous|prior|above|earlier) (instruction|rule)"
    rf"|(note|dear|attention|message|instructions?)( to| for)?( the| any| an?)? {JUDGE}\b"
    rf"|\b{JUDGE}s?[:,]? (you |please |must |should )+(\w+ )?"
    rf"(accept|pass|mark|rate|score|approve|treat)"
    rf"|(mark|rate|score|grade|report|classify) this (\w+ ){{0,3}}as (correct|honest|pass|valid)",
    re.IGNORECASE,
)


def prompt_injection(program: ParsedProgram) -> Iterator[int]:
    """Find comments and strings that tell a judging model what to answer."""
    return (n for n, line in enumerate(program.lines, 1) if ADDRESS.search(line))


# Rules about code that is hard to read ---------------------------------------------------------


def obfuscated(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find code or names put together from literals, where one literal would do."""
    for node in program.nodes:
        if isinstance(node, ast.Call) and node.args:
            called = program.name(node.func)
            read = node.args[1:2] if called in ATTRIBUTE_NAMES else node.args[:1]
            if called in ATTRIBUTE_NAMES | CODE_NAMES and any(
                is_assembled(program, text) for text in read
            ):
                yield node


ATTRIBUTE_NAMES = frozenset({"getattr", "setattr", "delattr"})
CODE_NAMES = frozenset({"exec", "eval", "compile", "__import__", "importlib.import_module"})
DECODERS = ("base64.", "binascii.", "codecs.", "marshal.", "zlib.", "bytes.fromhex")


def is_assembled(program: ParsedProgram, node: ast.expr) -> bool:
    """Tell whether an expression computes text from literals alone, or decodes it."""
    inside = list(ast.walk(node))
    if any((program.name(n) or "").startswith(DECODERS) for n in inside):
        return True
    literals = any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in inside)
    made = any(
        isinstance(n, ast.Subscript)
        or (isinstance(n, ast.Call) and program.name(n.func) != "compile")
        for n in inside
    )
    loops = {
        name for n in inside if isinstance(n, ast.comprehension) for name in names_in(n.target)
    }
    return literals and made and names_in(node) <= loops | BUILTINS


def dynamic_code(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find text that is run as code, and names of libraries that are computed."""
    for node in program.nodes:
        if isinstance(node, ast.Call):
            called = program.name(node.func)
            computed = len(node.args) >= 2 and text_of(node.args[1]) is None
            if called in ("exec", "eval", "compile", "__import__", "pickle.loads") or (
                called == "getattr" and computed and program.name(node.args[0]) in LIBRARIES
            ):
                yield node


# Rules about kernels and launches --------------------------------------------------------------


def no_jit_kernel(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find ``ModelNew`` in a file without any Triton function."""
    if program.model is not None and not program.kernels and not imports_kernels(program):
        yield program.model


def imports_kernels(program: ParsedProgram) -> bool:
    """Tell whether the file takes names from packages that may hold kernels."""
    tops = {full.partition(".")[0] for full in program.imports.values()}
    return bool(
        tops - {"torch", "triton", "numpy", "reference"} - sys.stdlib_module_names - BUILTINS
    )


def is_dynamic(program: ParsedProgram) -> bool:
    """Tell whether names may be used that do not stand in the source."""
    return any(
        program.name(node) in ("globals", "locals", "vars", "exec", "eval", "operator.attrgetter")
        or (
            isinstance(node, ast.Call)
            and program.name(node.func) == "getattr"
            and constant_getattr(node) is None
        )
        for node in program.nodes
    )


def kernel_never_launched(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find kernels of which ``ModelNew`` can launch none."""
    kernels = [node for node in program.kernels.values() if node is not None]
    if program.model is None or not kernels or is_dynamic(program) or imports_kernels(program):
        return
    roots: list[ast.AST] = [program.model, *program.definitions[MODEL]]
    for node in program.tree.body:
        decorated = isinstance(node, Function | ast.ClassDef) and node.decorator_list
        if decorated or not isinstance(node, Function | ast.ClassDef | ast.Assign):
            roots.append(node)
    if not any(may_launch(program, node) for node in program.reach(roots)):
        yield kernels[0]


def may_launch(program: ParsedProgram, node: ast.AST) -> bool:
    """Tell whether a node is a launch, or hands a kernel on to something that may be one."""
    if isinstance(node, ast.Call):
        handed = chain(node.args, (keyword.value for keyword in node.keywords))
        return (
            isinstance(node.func, ast.Subscript)
            or last_name(node.func) in program.kernels
            or any(names_in(argument) & program.kernels.keys() for argument in handed)
        )
    if isinstance(node, ast.Subscript):
        return last_name(node.value) in program.kernels
    return isinstance(node, ast.Attribute) and node.attr in ("run", "warmup")


def unused_kernel(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find Triton functions whose name stands nowhere else."""
    named = {last_name(node) for node in program.nodes}
    texts = {text_of(node) for node in program.nodes}
    for name, node in program.kernels.items():
        if node is not None and name not in named | texts:
            yield node


def atomics(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find calls of ``tl.atomic_add`` and its like in kernels."""
    for node in program.device_nodes:
        if isinstance(node, ast.Call) and (last_name(node.func) or "").startswith("atomic_"):
            yield node


# Rules about forward ---------------------------------------------------------------------------


def inherits_reference(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find a ``ModelNew`` whose ``forward`` is not in the file or calls the reference's."""
    if program.model is None:
        yield from program.definitions.get(MODEL, [])
        return
    if not program.forwards:
        yield program.model
        return
    for node in program.forward_nodes:
        if isinstance(node, ast.Call) and last_name(node.func) == "forward":
            owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            parent = isinstance(owner, ast.Call) and last_name(owner.func) == "super"
            if (parent or last_name(owner) == "Model") and not bases_launch(program):
                yield node


def bases_launch(program: ParsedProgram) -> bool:
    """Tell whether a class that ``ModelNew`` is made from launches a kernel."""
    bases = program.model.bases if program.model is not None else []
    return any((last_name(base) or "") in program.launchers for base in bases)


def torch_compute(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find computations by PyTorch that ``forward`` reaches."""
    return (node for node in program.forward_nodes if program.is_compute(node))


def call_counter(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find branches on a number that ``forward`` counts up where it outlives the call."""
    nodes = program.forward_nodes
    shared = {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
    counters = set()
    for node in nodes:
        match node:
            case ast.AugAssign(ast.Attribute(attr=name), value=ast.Constant()):
                counters.add(name)
            case ast.AugAssign(ast.Name(name), value=ast.Constant()) if name in shared:
                counters.add(name)
            case ast.AugAssign(ast.Subscript(ast.Name(name)), value=ast.Constant()):
                if name in program.definitions:  # a list at the top of the file
                    counters.add(name)
    for node in nodes:
        test = test_of(node)
        if test is not None and counters & {last_name(n) or "" for n in ast.walk(test)}:
            yield node


def compared_to_none(test: ast.expr) -> dict[str, bool]:
    """Return attributes that a condition compares with None: whether it asks for ``is not``."""
    found = {}
    for node in ast.walk(test):
        match node:
            case ast.Compare(ast.Attribute(attr=name), [ast.Is()], [ast.Constant(None)]):
                found[name] = False
            case ast.Compare(ast.Attribute(attr=name), [ast.IsNot()], [ast.Constant(None)]):
                found[name] = True
    return found


def kept_output(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find a ``forward`` that computes once into an attribute and then returns that."""
    for function in program.forwards:
        nodes = list(program.walk(*function.body))
        kept = {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        returned = {last_name(n.value) for n in nodes if isinstance(n, ast.Return) and n.value}
        for node in nodes:
            if not isinstance(node, ast.If):
                continue
            for name, there in compared_to_none(node.test).items():
                launches = program.launches(node.body)
                gives = any(
                    isinstance(n, ast.Return) and n.value and last_name(n.value) == name
                    for n in program.walk(*node.body)
                )
                once = not there and launches and name in returned
                if name in kept and (once or (there and gives and not launches)):
                    yield node


def mentions_identity(node: ast.AST) -> bool:
    """Tell whether an expression asks which tensor it has, not what is in it."""
    return any(
        (isinstance(n, ast.Attribute) and n.attr in ("data_ptr", "_version"))
        or (isinstance(n, ast.Call) and last_name(n.func) == "id")
        for n in ast.walk(node)
    )


def mentions_size(node: ast.AST) -> bool:
    """Tell whether an expression asks for a tensor's shape."""
    return any(last_name(n) in ("shape", "size", "numel") for n in ast.walk(node))


def mentions_identity_or_size(node: ast.AST) -> bool:
    """Tell whether an expression asks for anything of a tensor but what is in it."""
    return mentions_identity(node) or mentions_size(node)


def names_made_from(
    program: ParsedProgram, function: Function, test: Callable[[ast.AST], bool]
) -> set[str]:
    """Return variables of a function assigned from expressions of some kind."""
    return {
        name
        for node in program.walk(*function.body)
        if isinstance(node, ast.Assign) and test(node.value)
        for target in node.targets
        for name in names_in(target)
    }


def dictionaries(program: ParsedProgram) -> set[str]:
    """Return variables and attributes that the file makes as dictionaries."""
    makers = ("dict", "collections.OrderedDict", "collections.defaultdict")
    found = set()
    for node in program.host_nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            made = node.value
            if isinstance(made, ast.Dict) or (
                isinstance(made, ast.Call) and program.name(made.func) in makers
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {last_name(target) or "" for target in targets}
    return found


def looked_up(program: ParsedProgram, node: ast.AST | None) -> ast.expr | None:
    """Return the key of ``cache[key]`` or ``cache.get(key)``."""
    match node:
        case ast.Subscript(owner, key):
            pass
        case ast.Call(ast.Attribute(owner, "get"), [key, *_]):
            pass
        case _:
            return None
    return key if last_name(owner) in dictionaries(program) else None


def output_cache(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find functions that compute, and return a stored result when they know the tensor again."""
    yield from kept_output(program)
    for function in program.host_nodes:
        if not isinstance(function, Function):
            continue
        if not (program.launches(function.body) or program.computes(function.body)):
            continue
        known: Callable[[ast.AST], bool] = mentions_identity
        if function in program.forwards:  # elsewhere what is kept by shape may be scratch memory
            known = mentions_identity_or_size
        identities = names_made_from(program, function, mentions_identity)
        keys = names_made_from(program, function, known)
        found = names_made_from(
            program, function, lambda node: looked_up(program, node) is not None
        )
        for node in program.walk(*function.body):
            if isinstance(node, ast.Return) and node.value is not None:
                key = looked_up(program, copied_from(node.value))
                if key is not None and (known(key) or names_in(key) & keys):
                    yield node
            elif isinstance(node, ast.If) and knows_again(node.test, identities):
                returns = (n for n in program.walk(*node.body) if isinstance(n, ast.Return))
                yield from (n for n in returns if is_stored(copied_from(n.value), found))


def copied_from(node: ast.expr | None) -> ast.expr | None:
    """Return ``x`` for ``x.clone()``, and other values as they are."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in ("clone", "detach", "contiguous", "to"):
            break
        node = node.func.value
    return node


def knows_again(test: ast.expr, keys: set[str]) -> bool:
    """Tell whether a condition is true of a tensor that was seen before."""
    return (
        mentions_identity(test)
        or bool(names_in(test) & keys)
        or any(
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.Is)
            and isinstance(node.left, ast.Name)
            and isinstance(node.comparators[0], ast.Attribute | ast.Subscript)
            for node in ast.walk(test)
        )
    )


def is_stored(node: ast.expr | None, found: set[str]) -> bool:
    """Tell whether a returned value was kept from an earlier call."""
    if isinstance(node, ast.Name):
        return node.id in found
    if isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Attribute)


def seed_replay(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find a function that sets a seed and then draws, below ``forward``."""
    seeds = ("torch.manual_seed", "torch.cuda.manual_seed", "torch.set_rng_state")
    draws = ("torch.rand", "torch.randn", "torch.randint", "torch.randperm", "torch.normal")
    for function in program.forward_functions if program.model is not None else ():
        names = {
            program.name(n): n for n in program.walk(*function.body) if isinstance(n, ast.Attribute)
        }
        if any(name and name.startswith(draws) for name in names):
            yield from (node for name, node in names.items() if name in seeds)


def instance_override(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find methods of single objects that are replaced."""
    functions = {n.name for n in program.nodes if isinstance(n, Function)}
    for node in program.host_nodes:
        if isinstance(node, ast.Call) and program.name(node.func) == "object.__setattr__":
            if len(node.args) > 1 and text_of(node.args[1]) in TENSOR_METHODS | {"__class__"}:
                yield node
        elif isinstance(node, ast.Assign):
            callable_value = (
                isinstance(node.value, ast.Lambda)
                or last_name(node.value) in functions
                or (
                    isinstance(node.value, ast.Call)
                    and program.name(node.value.func) == "types.MethodType"
                )
            )
            for target in (t for t in node.targets if isinstance(t, ast.Attribute)):
                method = target.attr in TENSOR_METHODS and callable_value
                if (method or target.attr == "__class__") and is_foreign(program, target.value):
                    yield node


def is_foreign(program: ParsedProgram, node: ast.expr) -> bool:
    """Whether an expression is a variable, neither an import nor the method's own object."""
    own = ("self", "cls", "ctx")
    return isinstance(node, ast.Name) and node.id not in own and not program.name(node)


TENSOR_METHODS = COMPUTE | {
    *("allclose", "equal", "isclose", "eq", "ne", "cpu", "cuda", "to", "float", "double", "half"),
    *("item", "numpy", "tolist", "detach", "clone", "contiguous", "size", "numel", "stride"),
    *("data_ptr", "view", "reshape", "all", "any", "__eq__", "__sub__", "__torch_function__"),
}


def tensor_subclass(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find classes of tensors, and results turned into them."""
    for node in program.host_nodes:
        if isinstance(node, ast.ClassDef):
            bases = {program.name(base) for base in node.bases}
            if bases & {"torch.Tensor", "torch._tensor.Tensor", "torch.nn.Parameter"}:
                yield node
        elif isinstance(node, Function):
            if node.name in ("__torch_function__", "__torch_dispatch__"):
                yield node
        elif last_name(node) in ("_make_subclass", "_make_wrapper_subclass"):
            yield node
        elif isinstance(node, ast.Call) and last_name(node.func) == "as_subclass":
            kinds = [program.name(kind) for kind in node.args]
            yield from [node] if kinds != ["torch.Tensor"] else []


# Rules about precision -------------------------------------------------------------------------

LOW = re.compile(r"(torch|triton\.language)\.(float16|half|bfloat16|float8\w*)")


def is_low_cast(program: ParsedProgram, node: ast.AST) -> bool:
    """Tell whether a node is a cast to a literal type of 16 bits or fewer."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("half", "bfloat16") and not node.args:
        return program.name(node.func) is None
    if node.func.attr not in ("to", "cast", "type", "autocast"):
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    return any(LOW.fullmatch(program.name(value) or "") for value in given)


def precision_downgrade(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find values cast to a half type other than just before they are stored."""
    for node in chain(program.device_nodes, program.forward_nodes):
        if is_low_cast(program, node):
            parent = program.parents.get(node)
            if not (isinstance(parent, ast.Call) and last_name(parent.func) == "store"):
                yield node


def tf32_dot(program: ParsedProgram) -> Iterator[ast.AST]:
    """Find ``tl.dot`` that may round float32 operands to TF32."""
    for node in program.device_nodes:
        if isinstance(node, ast.Call) and program.name(node.func) == "triton.language.dot":
            options = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            exact = options.get("input_precision") in ("ieee", "tf32x3", "bf16x6")
            low = any(is_low_cast(program, operand) for operand in node.args[:2])
            if not low and not exact and options.get("allow_tf32") is not False:
                yield node
