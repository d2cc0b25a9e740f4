"""Make one kernel of those that differ only in names, as a person writes it once."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from curate.generator.text.expressions import unused
from curate.generator.text.layout import blocks, comment
from curate.syntax import names_in, stores_in

_LONGEST = 240
"""Characters of a docstring's first sentence that names all that a kernel is launched for."""

_VAGUE = {"kernel", "to", "of", "layer", "block", "forward", "matmul"}
"""What says nothing of what a kernel does."""


class _Form:
    """A kernel, and its text without names that do not matter.

    Attributes:
        names: its arguments and variables, in an order that does not hang on them, but for its
            constants.
        told: the first paragraph of its docstring, as one line.
        rest: the others.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        plain = [a.arg for a in function.args.args if a.annotation is None]
        own = {*plain, *stores_in(*function.body)}
        decorators = [node for one in function.decorator_list for node in ast.walk(one)]
        told = {node.value for node in decorators if isinstance(node, ast.Constant)}
        order = dict.fromkeys([*plain, *names_in(*function.body)])
        self.names = [name for name in order if name in own and name not in told]
        first, _, self.rest = (ast.get_docstring(function, clean=False) or "").partition("\n\n")
        self.told = " ".join(first.split())

    @property
    def text(self) -> str:
        """What two kernels have in common that do the same; comments say nothing of it."""
        code = ast.parse(ast.unparse(self.function)).body[0]
        assert isinstance(code, ast.FunctionDef)
        code.name, code.body = "kernel", code.body[1:]
        for block in blocks(code):
            block[:] = [one for one in block if not comment(one)] or [ast.Pass()]
        _rename(code, {name: f"v{i}" for i, name in enumerate(self.names)})
        return f"{self.rest}\n{ast.unparse(code)}"


def _rename(function: ast.FunctionDef, names: dict[str, str]) -> None:
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)


def unite(
    kernels: Iterable[ast.FunctionDef], taken: set[str], others: Mapping[str, str]
) -> tuple[list[ast.FunctionDef], dict[str, str]]:
    """Return kernels of which no two do the same, and the name of that which stands for each.

    Args:
        kernels: in order of launch; the first of those that do the same is changed.
        taken: names that the program has.
        others: by a kernel's name what else it may be called, where another has its name.
    """
    groups: dict[str, list[_Form]] = {}
    for form in map(_Form, kernels):
        groups.setdefault(form.text, []).append(form)
    kept: list[ast.FunctionDef] = []
    names: dict[str, str] = {}
    for forms in groups.values():
        old = [form.function.name for form in forms]
        if len(forms) > 1:
            _speak_for_all(forms, taken)
        kept.append(forms[0].function)
        names |= dict.fromkeys(old, forms[0].function.name)
    numbered = _number_anew(kept, taken, others)
    return kept, {old: numbered[name] for old, name in names.items()}


def _number_anew(
    kernels: list[ast.FunctionDef], taken: set[str], others: Mapping[str, str]
) -> dict[str, str]:
    """Take numbers off kernels' names where that or another name is free, close the gaps in what
    is left of them, and return the new names."""
    taken -= {kernel.name for kernel in kernels}
    new: dict[str, str] = {}
    for kernel in kernels:
        name, other = re.sub(r"_\d+$", "", kernel.name), others.get(kernel.name)
        if name in taken and other and other not in taken:
            name = other
        name = new[kernel.name] = unused(name, taken)
        kernel.name = name
    return new


def _speak_for_all(forms: list[_Form], taken: set[str]) -> None:
    """Give the first of some kernels names and a docstring that fit all of them."""
    function = forms[0].function
    stems = [re.sub(r"_kernel(_\d+)?$", "", form.function.name) for form in forms]
    stem = _shared(stems) if len(set(stems)) > 1 else stems[0]
    if stem in {"", *_VAGUE}:
        multiplies = "tl.dot(" in ast.unparse(function)
        weighs = any(re.search("weight|proj", name) for name in forms[0].names)
        stem = ("linear" if weighs else "matmul") if multiplies else stems[0]
    taken -= {form.function.name for form in forms}
    function.name = unused(f"{stem}_kernel", taken)
    _rename(function, _common_names(forms))
    told = "\n    ".join(textwrap.wrap(_told([form.told for form in forms]), 93))
    function.body[0] = ast.Expr(ast.Constant(f"{told}\n\n{forms[0].rest}"))


def _common_names(forms: list[_Form]) -> dict[str, str]:
    """Return names for the arguments and variables that some kernels call differently."""
    function = forms[0].function
    used = {*names_in(function), *(argument.arg for argument in function.args.args)}
    stores = [
        call.args[0]
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and re.match(r"tl\.(store|atomic)", ast.unparse(call.func))
    ]
    stored = set(names_in(*stores))
    new: dict[str, str] = {}
    for words in zip(*(form.names for form in forms), strict=True):
        name = words[0]
        if len(set(words)) == 1:
            continue
        shared = _shared(words)
        if shared == "ptr":
            shared = "out_ptr" if name in stored else "x_ptr"
        loaded = new.get(f"{name}_ptr", "").removesuffix("_ptr")
        word = shared or loaded or name
        ending = "_ptr" if word.endswith("_ptr") else ""
        new[name] = name if word == name else unused(word.removesuffix(ending), used, ending)
    return new


def _shared(words: Sequence[str]) -> str:
    """Return what some names have in common, without numbers."""
    parts = [[re.sub(r"\d+$", "", part) for part in word.split("_")] for word in words]
    common = [part for part in dict.fromkeys(parts[0]) if all(part in other for other in parts)]
    return "_".join(filter(None, common))


def _told(sentences: Sequence[str]) -> str:
    """Return one sentence in place of those that say what each kernel computes."""
    told = list(dict.fromkeys(sentences))
    if len(told) == 1:
        return told[0]
    found = [re.fullmatch(r"(Compute|Backpropagate through) (.*)\.", one) for one in told]
    verb = found[0][1] if found[0] else ""
    formulas = [one[2] for one in found if one and one[1] == verb]
    places = [formula.rpartition(" in ") for formula in formulas]
    if (
        places and places[0][0] and len({formula for formula, _, _ in places}) == 1
    ):  # of several functions
        whole = f"{verb} {' or '.join([*formulas[:1], *(where for _, _, where in places[1:])])}."
    else:
        whole = f"{verb} {'; or '.join(formulas)}."
    fits = len(formulas) == len(told) and len(whole) <= _LONGEST
    return whole if fits else f"{told[0].removesuffix('.')}; or as much of the others."
