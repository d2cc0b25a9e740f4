"""Other ways to write a problem in KernelBench's form, which leave what it computes as it is.

Each is an edit of a syntax tree, or of a text. Where a problem has no place for one, it raises
`NoPlace`. Edits take `forward` as straight lines: they leave loops and branches alone.
"""

from __future__ import annotations

import ast
import copy
import json
from collections import Counter
from collections.abc import Callable

Edit = Callable[[ast.Module], None]


class NoPlace(Exception):
    """A program has no place where an edit can be made."""


# --- where edits are made ---------------------------------------------------------------------


def model_of(tree: ast.Module) -> ast.ClassDef:
    """Return the class ``Model``."""
    found = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    if not found:
        raise NoPlace
    return found[0]


def method_of(tree: ast.Module, name: str) -> ast.FunctionDef:
    """Return a method of ``Model``."""
    methods = [n for n in model_of(tree).body if isinstance(n, ast.FunctionDef) and n.name == name]
    if not methods:
        raise NoPlace
    return methods[0]


def _statements(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of ``forward``, which must be straight lines."""
    forward = method_of(tree, "forward")
    body = [s for s in forward.body if not (isinstance(s, ast.Expr) and _is_constant(s.value))]
    plain = all(isinstance(s, ast.Assign | ast.AugAssign | ast.Return) for s in body)
    if not plain or not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
        raise NoPlace
    forward.body = body
    return body


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _call(text: str, **parts: ast.expr) -> ast.expr:
    """Return an expression, with names in it replaced by other expressions."""
    expression = ast.parse(text, mode="eval").body
    return _Replace(parts).visit(expression)  # type: ignore[no-any-return]


class _Replace(ast.NodeTransformer):
    """Puts expressions in the place of names that are read."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.names:
            return copy.deepcopy(self.names[node.id])
        return node


def _plain_name(statement: ast.stmt) -> str | None:
    """Return the name that ``name = value`` assigns to."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else None


def _changed(tree: ast.Module, transformer: ast.NodeTransformer, name: str = "forward") -> None:
    """Apply a transformer to a method.

    Raises:
        NoPlace: it changed nothing.
    """
    method = method_of(tree, name)
    before = ast.dump(method)
    transformer.visit(method)
    if ast.dump(method) == before:
        raise NoPlace


# --- variables and expressions ------------------------------------------------------------------


def fresh_variables(tree: ast.Module) -> None:
    """Give each assignment in `forward` a variable of its own."""
    now: dict[str, ast.expr] = {}
    count = 0
    for statement in _statements(tree):
        if isinstance(statement, ast.AugAssign):
            raise NoPlace
        assert isinstance(statement, ast.Assign | ast.Return)
        value = statement.value
        assert value is not None
        statement.value = _Replace(now).visit(value)
        if (name := _plain_name(statement)) is not None:
            count += 1
            now[name] = ast.Name(f"step{count}", ast.Load())
            assert isinstance(statement, ast.Assign)
            statement.targets = [ast.Name(f"step{count}", ast.Store())]
    if not count:
        raise NoPlace


def one_expression(tree: ast.Module) -> None:
    """Inline what is used once."""
    fresh_variables(tree)
    forward = method_of(tree, "forward")
    uses = Counter(
        n.id for n in ast.walk(forward) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )
    values: dict[str, ast.expr] = {}
    body: list[ast.stmt] = []
    for statement in forward.body:
        assert isinstance(statement, ast.Assign | ast.Return) and statement.value is not None
        statement.value = _Replace(values).visit(statement.value)
        name = _plain_name(statement)
        if name is not None and uses[name] == 1:
            assert statement.value is not None
            values[name] = statement.value
        else:
            body.append(statement)
    if not values:
        raise NoPlace
    forward.body = body


def three_addresses(tree: ast.Module) -> None:
    """Give each call or operation within another a variable."""
    hoist = _Hoist()
    body: list[ast.stmt] = []
    for statement in _statements(tree):
        assert isinstance(statement, ast.Assign | ast.AugAssign | ast.Return)
        assert statement.value is not None
        statement.value = hoist.inside(statement.value)
        body += [*hoist.taken, statement]
        hoist.taken = []
    if not hoist.count:
        raise NoPlace
    method_of(tree, "forward").body = body


class _Hoist(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0
        self.taken: list[ast.stmt] = []

    def inside(self, value: ast.expr) -> ast.expr:
        """Hoist what is inside an expression, and leave the expression."""
        return ast.NodeTransformer.generic_visit(self, value)  # type: ignore[return-value]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self._take(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self._take(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    visit_ListComp = visit_GeneratorExp = visit_IfExp = visit_Lambda  # type: ignore[assignment]

    def _take(self, node: ast.expr) -> ast.expr:
        self.generic_visit(node)
        self.count += 1
        name = f"t{self.count}"
        self.taken.append(ast.Assign([ast.Name(name, ast.Store())], node, lineno=0))
        return ast.Name(name, ast.Load())


class _Commute(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Mult):
            node.left, node.right = node.right, node.left
        return node


def commuted(tree: ast.Module) -> None:
    """Exchange the operands of sums and products."""
    _changed(tree, _Commute())


# --- functions, methods, modules ----------------------------------------------------------------

_METHODS = {"relu", "sigmoid", "tanh", "softmax", "mean", "sum", "exp", "sqrt", "abs", "clamp"}
_METHODS |= {"logsumexp", "max", "min", "squeeze", "unsqueeze", "add", "mul", "sub", "div"}
_METHODS |= {"flatten", "transpose", "permute", "reshape", "cumsum", "log", "norm"}
_OF_MODULES = {"relu": "ReLU", "sigmoid": "Sigmoid", "tanh": "Tanh", "softmax": "Softmax"}
_OF_MODULES |= {"gelu": "GELU", "mish": "Mish", "leaky_relu": "LeakyReLU", "hardtanh": "Hardtanh"}
_OF_MODULES |= {"softplus": "Softplus", "silu": "SiLU", "max_pool2d": "MaxPool2d"}
_OF_MODULES |= {"hardswish": "Hardswish", "adaptive_avg_pool2d": "AdaptiveAvgPool2d"}
_PLAIN = {"ReLU": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "GELU": "gelu", "Mish": "mish"}
_PLAIN |= {"SiLU": "silu", "Softmax": "softmax", "Softplus": "softplus", "ReLU6": "relu6"}
_PLAIN |= {"LeakyReLU": "leaky_relu", "Hardtanh": "hardtanh", "Hardswish": "hardswish"}
_PLAIN |= {f"{kind}Pool{n}d": f"{kind.lower()}_pool{n}d" for kind in ("Max", "Avg") for n in "123"}
_PLAIN |= {
    f"Adaptive{k}Pool{n}d": f"adaptive_{k.lower()}_pool{n}d" for k in ("Avg",) for n in "123"
}
_HELD = {
    "Linear": "linear(X, M.weight, M.bias)",
    "LayerNorm": "layer_norm(X, M.normalized_shape, M.weight, M.bias, M.eps)",
    "GroupNorm": "group_norm(X, M.num_groups, M.weight, M.bias, M.eps)",
}
_HELD |= {
    f"Conv{n}d": f"conv{n}d(X, M.weight, M.bias, M.stride, M.padding, M.dilation, M.groups)"
    for n in "123"
}
_HELD |= {
    f"ConvTranspose{n}d": f"conv_transpose{n}d(X, M.weight, M.bias, M.stride, M.padding, "
    "M.output_padding, M.groups, M.dilation)"
    for n in "123"
}
_HELD |= {
    f"BatchNorm{n}d": "batch_norm(X, M.running_mean, M.running_var, M.weight, M.bias, False, 0.0, "
    "M.eps)"
    for n in "123"
}


class _Methods(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(ast.Name("torch"), ("matmul" | "mm" | "bmm")) if len(node.args) == 2:
                return ast.BinOp(node.args[0], ast.MatMult(), node.args[1])
            case ast.Attribute(ast.Name("torch" | "F"), name) if name in _METHODS and node.args:
                if isinstance(node.args[0], ast.Tuple | ast.List | ast.Constant):
                    return node
                return ast.Call(ast.Attribute(node.args[0], name), node.args[1:], node.keywords)
        return node


def methods(tree: ast.Module) -> None:
    """Write functions of torch as methods, and products of matrices as ``@``."""
    _changed(tree, _Methods())


class _Modules(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        prefix = ast.unparse(node.func).rpartition(".")[0]
        if prefix in ("torch", "F", "torch.nn.functional") and name in _OF_MODULES and node.args:
            module = _call(f"torch.nn.{_OF_MODULES[name]}()")
            assert isinstance(module, ast.Call)
            module.args, module.keywords = node.args[1:], node.keywords
            return ast.Call(module, node.args[:1], [])
        return node


def modules(tree: ast.Module) -> None:
    """Write functions as modules."""
    _changed(tree, _Modules())


class _Functions(ast.NodeTransformer):
    """Writes calls of modules as functions, on the parameters that the modules hold."""

    def __init__(self, layers: dict[str, ast.Call]) -> None:
        self.layers = layers

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        attribute = _own_attribute(node.func)
        if attribute not in self.layers or len(node.args) != 1:
            return node
        layer = self.layers[attribute]
        kind = ast.unparse(layer.func).rpartition(".")[2]
        if kind in _HELD:
            held = f"torch.nn.functional.{_HELD[kind]}"
            return _call(held, X=node.args[0], M=node.func)
        if kind in _PLAIN and not _names_in(layer) - {"nn", "torch"}:
            function = _call(f"torch.nn.functional.{_PLAIN[kind]}()")
            assert isinstance(function, ast.Call)
            function.args, function.keywords = [node.args[0], *layer.args], layer.keywords
            return function
        return node


def _names_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _own_attribute(node: ast.expr) -> str:
    """Return the name in ``self.name``."""
    match node:
        case ast.Attribute(ast.Name("self"), name):
            return name
    return ""


def _layers(tree: ast.Module) -> dict[str, ast.Call]:
    """Return the calls of ``torch.nn`` whose results `__init__` keeps."""
    found = {}
    for statement in method_of(tree, "__init__").body:
        match statement:
            case ast.Assign([target], ast.Call() as call) if _own_attribute(target):
                if ast.unparse(call.func).startswith(("nn.", "torch.nn.")):
                    found[_own_attribute(target)] = call
    return found


def functions(tree: ast.Module) -> None:
    """Write modules as functions."""
    _changed(tree, _Functions(_layers(tree)))


def sequential(tree: ast.Module) -> None:
    """Put modules that follow each other into one ``nn.Sequential``."""
    layers = _layers(tree)
    body: list[ast.stmt] = []
    run: list[tuple[str, str]] = []
    joined = False
    for statement in [*_statements(tree), ast.Pass()]:
        name = _plain_name(statement)
        value = statement.value if isinstance(statement, ast.Assign) else None
        attribute = _own_attribute(value.func) if isinstance(value, ast.Call) else ""
        given = ast.unparse(value.args[0]) if isinstance(value, ast.Call) and value.args else ""
        if name and attribute in layers and (not run or run[-1][0] == name == given):
            body.append(statement)
            run.append((name, attribute))
            continue
        if len(run) > 1:
            first = body[-len(run)]
            assert isinstance(first, ast.Assign) and isinstance(first.value, ast.Call)
            parts = ", ".join(f"self.{attribute}" for _, attribute in run)
            first.value.func = _call(f"torch.nn.Sequential({parts})")
            del body[1 - len(run) :]
            joined = True
        run = []
        body.append(statement)
        if name and attribute in layers:
            run = [(name, attribute)]
    if not joined:
        raise NoPlace
    method_of(tree, "forward").body = body[:-1]


# --- numbers --------------------------------------------------------------------------------------


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values of a program's own constants, as far as they are literals of numbers."""
    found: dict[str, ast.expr] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets, value):
                value = _Replace(found).visit(copy.deepcopy(value))
                if not _names_in(value):
                    for target in targets:
                        found |= {target.id: value} if isinstance(target, ast.Name) else {}
    return found


def folded(tree: ast.Module) -> None:
    """Write the constructor's arguments as literals where the constructor uses them."""
    made = [n for n in tree.body if getattr(n, "name", "") == "get_init_inputs"]
    last = made[0].body[-1] if made and isinstance(made[0], ast.FunctionDef) else None
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.List):
        raise NoPlace
    constants = _constants(tree)
    given = [_Replace(constants).visit(copy.deepcopy(v)) for v in last.value.elts]
    constructor = method_of(tree, "__init__")
    names = [argument.arg for argument in constructor.args.args[1:]]
    values = dict(zip(names, given, strict=False))
    if not values or any(_names_in(value) for value in values.values()):
        raise NoPlace
    if constructor.args.kwonlyargs or len(given) < len(names) - len(constructor.args.defaults):
        raise NoPlace
    defaults = constructor.args.defaults[::-1]
    for name, default in zip(names[::-1], defaults, strict=False):
        values.setdefault(name, default)
    constructor.body = [_Replace(values).visit(statement) for statement in constructor.body]
    constructor.args.args, constructor.args.defaults = constructor.args.args[:1], []
    last.value = ast.List([], ast.Load())


def other_sizes(tree: ast.Module) -> None:
    """Double the sizes of the program's own constants from 16 on."""
    changed = False
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 16:
                    node.value *= 2
                    changed = True
    if not changed:
        raise NoPlace


# --- lines that compute nothing -------------------------------------------------------------------


def _after_each(tree: ast.Module, line: Callable[[str], str]) -> None:
    """Put a line after each assignment of a call or an operation in `forward`."""
    body: list[ast.stmt] = []
    for statement in _statements(tree):
        body.append(statement)
        name = _plain_name(statement)
        value = statement.value if isinstance(statement, ast.Assign) else None
        of_tensor = isinstance(value, ast.Call | ast.BinOp) and ".size(" not in ast.unparse(value)
        if name and of_tensor and "shape" not in ast.unparse(value):  # type: ignore[arg-type]
            body += ast.parse(line(name)).body
    if len(body) == len(_statements(tree)):
        raise NoPlace
    method_of(tree, "forward").body = body


def reshaped(tree: ast.Module) -> None:
    """Reshape each result to the shape that it has."""
    _after_each(tree, lambda name: f"{name} = {name}.reshape({name}.shape)")


def logged(tree: ast.Module) -> None:
    """Say after each statement what came of it."""
    _after_each(tree, lambda name: f"print('now', '{name}', type({name}).__name__, flush=True)")


def hinted(tree: ast.Module) -> None:
    """Annotate arguments and variables."""
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        for argument in function.args.args[1:]:
            argument.annotation = _call("'torch.Tensor | int'")
        function.returns = _call("object")
    body: list[ast.stmt] = []
    seen: set[str] = set()
    for statement in method_of(tree, "forward").body:
        name = _plain_name(statement)
        if name and name not in seen and isinstance(statement, ast.Assign):
            annotation = _call("'torch.Tensor'")
            target = ast.Name(name, ast.Store())
            body.append(ast.AnnAssign(target, annotation, statement.value, 1))
        else:
            body.append(statement)
        seen.add(name or "")
    method_of(tree, "forward").body = body


# --- around the problem -------------------------------------------------------------------------


def _first_input(tree: ast.Module) -> str:
    arguments = method_of(tree, "forward").args.args
    if len(arguments) < 2:
        raise NoPlace
    return arguments[1].arg


def _rename_model(tree: ast.Module, name: str) -> None:
    """Give ``Model`` another name, also where it names itself."""
    model = model_of(tree)
    model.name = name
    for node in ast.walk(model):
        if isinstance(node, ast.Name) and node.id == "Model":
            node.id = name


def in_half_precision(tree: ast.Module) -> None:
    """Compute in bfloat16, and return float32."""
    method_of(tree, "__init__").body += ast.parse("self.to(torch.bfloat16)").body
    _rename_model(tree, "Half")
    tree.body += ast.parse(
        "class Model(Half):\n"
        "    def forward(self, *given):\n"
        "        given = [g.to(torch.bfloat16) if g.is_floating_point() else g for g in given]\n"
        "        result = super().forward(*given)\n"
        "        return result.to(torch.float32)\n"
    ).body


def wrapped(tree: ast.Module) -> None:
    """Make the problem a submodule of a larger one."""
    _rename_model(tree, "Inner")
    tree.body += ast.parse(
        "class Model(torch.nn.Module):\n"
        "    def __init__(self, *given):\n"
        "        super().__init__()\n"
        "        self.inner = Inner(*given)\n"
        "    def forward(self, *given):\n"
        "        result = self.inner(*given)\n"
        "        return torch.cos(result) * result\n"
    ).body


def inlined(tree: ast.Module) -> None:
    """Compute something before and after, in the same `forward`."""
    name = _first_input(tree)
    body = _statements(tree)
    last = body[-1]
    assert isinstance(last, ast.Return) and last.value is not None
    before = ast.parse(f"{name} = torch.sin({name}) + {name}").body
    keep = ast.Assign([ast.Name("found", ast.Store())], last.value, lineno=0)
    after = ast.parse("return torch.cos(found) * found").body
    method_of(tree, "forward").body = [*before, *body[:-1], keep, *after]


def in_two_parts(tree: ast.Module) -> None:
    """Let one submodule do the first half of `forward` and another the rest."""
    body = _statements(tree)
    cuts = sorted(range(1, len(body)), key=lambda place: abs(place - len(body) // 2))
    given = [argument.arg for argument in method_of(tree, "forward").args.args[1:]]
    for cut in cuts:
        bound = {*given, *(name for s in body[:cut] if (name := _plain_name(s)))}
        live = sorted(_read_first(body[cut:]) & bound)
        name = _plain_name(body[cut - 1])
        if live == [name]:
            break
    else:
        raise NoPlace
    text = (
        "class {kind}(torch.nn.Module):\n"
        "    def __init__(self, owner):\n"
        "        super().__init__()\n"
        "        self.owner = [owner]\n"
        "    def forward(self, {given}):\n"
        "        pass\n"
    )
    halves = [("First", ", ".join(given), body[:cut]), ("Second", live[0], body[cut:])]
    for kind, arguments, part in halves:
        half = ast.parse(text.format(kind=kind, given=arguments)).body[0]
        assert isinstance(half, ast.ClassDef) and isinstance(half.body[1], ast.FunctionDef)
        owner = {"self": _call("self.owner[0]")}
        end = ast.parse(f"return {name}").body if kind == "First" else []
        half.body[1].body = [*(_Replace(owner).visit(s) for s in part), *end]
        tree.body.append(half)
    constructor = method_of(tree, "__init__")
    constructor.body += ast.parse("self.first = First(self)\nself.second = Second(self)").body
    call = f"return self.second(self.first({', '.join(given)}))"
    method_of(tree, "forward").body = ast.parse(call).body


def _read_first(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements read before they bind them."""
    bound: set[str] = set()
    read: set[str] = set()
    for statement in body:
        loads = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
        read |= {n.id for n in loads if isinstance(n.ctx, ast.Load)} - bound
        bound |= {name} if (name := _plain_name(statement)) else set()
    return read


DISGUISES: dict[str, tuple[Edit, ...]] = {
    "fresh variables": (fresh_variables,),
    "arguments folded": (folded,),
    "commuted": (commuted,),
    "as functions": (functions,),
    "as modules": (modules,),
    "as methods": (methods,),
    "one expression": (one_expression,),
    "sequential": (sequential,),
    "three addresses": (three_addresses,),
    "reshaped": (reshaped,),
    "bfloat16": (in_half_precision,),
    "submodule": (wrapped,),
    "two parts": (in_two_parts,),
    "inlined": (inlined,),
    "logged": (logged,),
    "hinted": (hinted,),
    "other sizes": (other_sizes,),
    "functions, methods, one expression": (functions, methods, one_expression),
}
"""What is done to a problem, in order."""


def _fence(code: str) -> str:
    return f"Make this module faster, please:\n\n```python\n{code}```\n\nKeep its name.\n"


def _messages(code: str) -> str:
    turns = [{"role": "user", "content": _fence(code)}, {"role": "assistant", "content": "Yes."}]
    return json.dumps({"messages": turns})


def _string(code: str) -> str:
    return f"import json\n\nQUESTION = {code!r}\nprint(json.dumps(QUESTION))\n"


def _between(code: str) -> str:
    return f"This is what I have so far.\n\n{code}\nIt is slow, I know.\n"


CONTAINERS: dict[str, Callable[[str], str]] = {
    "in a fence": _fence,
    "in messages": _messages,
    "in a string": _string,
    "between paragraphs": _between,
}
"""Texts that hold a problem."""


def disguised(code: str, edits: tuple[Edit, ...]) -> str:
    """Return a problem after edits.

    Raises:
        NoPlace: one of them cannot be made.
    """
    tree = ast.parse(code)
    for edit in edits:
        edit(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
