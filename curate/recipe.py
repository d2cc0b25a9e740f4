"""Recipes: what a data set is made of, written in YAML.

A recipe holds options only. Every mistake in one is reported with its file, line and field, what
is wrong, and what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from curate.order import misplaced
from curate.registry import AnyFormat, AnySource, AnyStep, kinds_by_name, known_steps
from curate.shipped.find import find_recipe, hint
from curate.sources.files import without_credentials
from curate.wording import choose, did_you_mean, plain

Location = tuple[str | int, ...]


TAGS = {"sources": "source", "steps": "step", "formats": "format"}
"""The lists of a recipe, and the field that says what an item of each is."""

TAKEN_NAMES = frozenset({"cache"})
"""Folders of the output folder that are no data set's."""

TAKEN_CONFIGS = frozenset({"lost", "licenses", "figs"})
"""Folders of a data set that are no config's."""


def _check_name(name: str) -> str:
    if name in TAKEN_NAMES:
        raise ValueError(f"the folder '{name}' holds what recipes share; choose another name")
    return name


class Recipe(BaseModel):
    """What a data set is made of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9][a-z0-9_-]*$",
            max_length=100,
            description="Names the folder of the data, alongside `cache`.",
        ),
        AfterValidator(_check_name),
    ]
    description: Annotated[str, Field(description="One or two sentences for the data card.")] = ""
    seed: Annotated[int, Field(ge=0, description="Decides everything that is drawn.")] = 0
    sources: Annotated[list[AnySource], Field(min_length=1, description="Where rows come from.")]
    steps: Annotated[list[AnyStep], Field(description="What is done to rows, in this order.")]
    formats: Annotated[
        list[AnyFormat], Field(description="Views of the finished rows; one config each.")
    ] = []

    def names(self) -> dict[str, list[str]]:
        """Return what the sources, steps and formats are called."""
        return {
            "sources": [source.name for source in self.sources],
            "steps": [step.name for step in self.steps],
            "formats": [view.format for view in self.formats],
        }


class RecipeError(Exception):
    """A recipe is wrong; the message has one line a mistake."""


def load_recipe(path: Path, changes: tuple[str, ...] = (), *, whole: bool = False) -> Recipe:
    """Read a recipe.

    Args:
        path: a YAML file, or the name of a recipe that comes with curate.
        changes: ``path=value`` settings that replace values of the file, such as
            ``steps.inputs.max_ops=10`` or ``seed=1``; the value is YAML.
        whole: whether it is a mistake that the recipe has no formats, which a run up to some step
            does without.

    Raises:
        RecipeError: the file cannot be read or is no valid recipe.
    """
    path = find_recipe(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}{hint(path)}") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: is not UTF-8 text ({error.reason})") from None
    try:
        root, data = read_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        raise RecipeError(f"{path}{line}: is not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise RecipeError(f"{path}: is not valid YAML: {error}") from None
    if root is None or not isinstance(data, dict):
        raise RecipeError(f"{path}: a recipe is a mapping with name, sources, steps and formats")
    twice = list(_repeated_keys(root, path))
    if twice:
        raise RecipeError("\n".join(twice))
    for change in changes:
        apply_change(data, change)
    try:
        recipe = Recipe.model_validate(data, context={"folder": path.parent})
    except ValidationError as error:
        raise RecipeError(_explain(error, root, path, data)) from None
    _check_names(recipe, path)
    _check_sense(recipe, root, path, data, whole)
    return recipe


def _check_sense(
    recipe: Recipe, root: yaml.Node, path: Path, data: dict[str, Any], whole: bool
) -> None:
    """Refuse steps that get no rows, or read what no step before them has set; and more that is of
    the right type and cannot be meant."""
    wrong = misplaced(recipe.sources, recipe.steps, recipe.formats, known_steps())
    lines = [f"{path}:{_line_of(root, place)}: {place[0]}: {said}" for place, said in wrong]
    for location, said in _senseless(recipe, data, whole):
        field = ".".join(map(str, location))
        lines.append(f"{path}:{_line_of(root, location)}: {field}: {said}")
    if lines:
        raise RecipeError("\n".join(lines))


def _senseless(recipe: Recipe, data: dict[str, Any], whole: bool) -> Iterator[tuple[Location, str]]:
    """Yield the place of each value that cannot be meant, and what is wrong with it."""
    for location in _misread(recipe, data):
        yield location, "must be a number, and not true or false"
    for i, source in enumerate(recipe.sources):
        for field, said in source.lacking():
            yield ("sources", i, field), said
    yield from _read_twice(recipe)
    if whole and not recipe.formats:
        known = ", ".join(f"`- format: {name}`" for name in kinds_by_name()["formats"])
        yield ("formats",), f"without any, the data set has no rows: add one or more of {known}"


def _read_twice(recipe: Recipe) -> Iterator[tuple[Location, str]]:
    """Yield the place of each thing that a place before it names too: its rows would come twice."""
    first: dict[tuple[str, str], Location] = {}
    for i, source in enumerate(recipe.sources):
        for place, content in source.pins().items():
            here: Location = ("sources", i, *place)
            before = first.setdefault((source.name, content), here)
            if before != here:
                yield here, f"is read already, by {'.'.join(map(str, before))}; keep one"


def _misread(value: Any, given: Any, location: Location = ()) -> Iterator[Location]:
    """Yield the place of each `true` or `false` that pydantic has read as the number 1 or 0.

    Args:
        value: a part of the recipe.
        given: the same part as the file has it.
        location: of the part.
    """
    if isinstance(given, bool) and not isinstance(value, bool):
        yield location
    elif isinstance(given, dict) and isinstance(value, BaseModel):
        for name, inner in given.items():
            yield from _misread(getattr(value, name, inner), inner, (*location, name))
    elif isinstance(given, list) and isinstance(value, list | tuple) and len(given) == len(value):
        for i, pair in enumerate(zip(value, given, strict=True)):
            yield from _misread(*pair, (*location, i))


def _check_names(recipe: Recipe, path: Path) -> None:
    configs = [f.config or f.format for f in recipe.formats]
    folded = [name.lower() for name in configs]  # some file systems do not tell case apart
    for name in configs:
        if name.lower() in TAKEN_CONFIGS:
            raise RecipeError(
                f"{path}: formats: config '{name}': a data set has a folder of this name already; "
                f"choose another one (taken: {', '.join(sorted(TAKEN_CONFIGS))})"
            )
        if folded.count(name.lower()) > 1:
            raise RecipeError(
                f"{path}: formats: two formats write the config '{name}'; give one a `config:`"
            )


# --- YAML -----------------------------------------------------------------------------------

MOST_DEEP = 100  # lists and maps within one another
MOST_VALUES = 200_000  # with those counted anew that an alias repeats
MOST_BITS = 4096  # of an integer; Python reads and prints no more than 4,300 digits


class _Loader(yaml.SafeLoader):
    """Tells the line of a value that is not what it looks like, such as the date 2026-99-99."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int) and value.bit_length() > MOST_BITS:
                raise ValueError("the number is too large")
            return value
        except yaml.YAMLError:
            raise
        except Exception as error:
            kind, shown = node.tag.rpartition(":")[2], _short(node.value)
            raise yaml.constructor.ConstructorError(
                None, None, f"{shown} is no {kind} that can be read ({error})", node.start_mark
            ) from None


def read_yaml(text: str) -> tuple[yaml.Node | None, Any]:
    """Return a text's nodes, which know their lines, and its value.

    Raises:
        yaml.YAMLError: it is no YAML, or more of it than anybody writes.
    """
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None, None
        _weigh(root, {}, 0)
        return root, loader.construct_document(root)
    except RecursionError:
        raise yaml.YAMLError(f"lists and maps lie more than {MOST_DEEP} deep") from None
    finally:
        loader.dispose()


def _weigh(node: yaml.Node, weights: dict[int, int], depth: int) -> int:
    """Return how many values a node holds, each as often as aliases repeat it.

    Args:
        node: of the document; those that aliases share are visited once.
        weights: of the nodes that have been visited; 0 of those that are being visited.
        depth: lists and maps around the node.

    Raises:
        yaml.YAMLError: a node holds itself, or too much, or lies too deep.
    """
    known = weights.get(id(node))
    problem = "an anchor holds an alias of itself" if known == 0 else None
    if depth > MOST_DEEP:
        problem = f"lists and maps lie more than {MOST_DEEP} deep"
    if known is None and problem is None:
        weights[id(node)] = 0
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        known = 1 + sum(_weigh(part, weights, depth + 1) for part in inner)
        weights[id(node)] = known
        if known > MOST_VALUES:
            problem = f"with its aliases it holds more than {MOST_VALUES:,} values"
    if problem:
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    assert known is not None
    return known


# --- changes from the command line ----------------------------------------------------------


def apply_change(data: dict[str, Any], change: str) -> None:
    """Set one value of a recipe's data; list items are named by their step, source or position."""
    where, equals, value = change.partition("=")
    change = change if len(change) < 100 else change[:97] + "..."  # as errors show it
    if not equals or not where:
        raise RecipeError(f"--set {change}: write path=value, such as steps.inductor.dynamic=false")
    *parents, last = where.split(".")
    place: Any = data
    for part in parents:
        place = _descend(place, part, change)
    try:
        _, new = read_yaml(value)
    except yaml.YAMLError as error:
        why = error.problem if isinstance(error, yaml.MarkedYAMLError) else error
        raise RecipeError(f"--set {change}: the value is not valid YAML: {why}") from None
    if isinstance(place, dict):
        place[last] = new
    elif isinstance(place, list) and _is_place(last, place):
        place[int(last)] = new
    else:
        raise RecipeError(f"--set {change}: '{last}' cannot be set there")


def _descend(place: Any, part: str, change: str) -> Any:
    if isinstance(place, dict) and part in place:
        return place[part]
    if isinstance(place, list):
        if _is_place(part, place):
            return place[int(part)]
        named = [x for x in place if isinstance(x, dict) and part in _words(x)]
        if len(named) == 1:
            return named[0]
        if named:
            raise RecipeError(
                f"--set {change}: {len(named)} items are called '{part}'; use the position, from 0"
            )
    known = list(place) if isinstance(place, dict) else []
    if isinstance(place, list):
        known = [word for x in place if isinstance(x, dict) for word in _words(x)]
    raise RecipeError(f"--set {change}: the recipe has no '{part}' there{choose(part, known)}")


def _is_place(word: str, items: list[Any]) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", word) is not None and int(word) < len(items)


def _words(item: dict[str, Any]) -> list[str]:
    return [str(item[key]) for key in TAGS.values() if key in item]


# --- errors with file, line and field -------------------------------------------------------


def _repeated_keys(root: yaml.Node, path: Path) -> Iterator[str]:
    """Yield a line for each key that one map has twice; what aliases share is visited once."""
    visited: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += reversed(node.value)
        if isinstance(node, yaml.MappingNode):
            seen: set[tuple[str, str]] = set()
            for key, _ in node.value:
                name = key.tag, str(key.value)
                if name in seen:
                    yield f"{path}:{key.start_mark.line + 1}: '{key.value}' is given twice"
                seen.add(name)
            todo += [value for _, value in reversed(node.value)]


def _explain(error: ValidationError, root: yaml.Node, path: Path, data: Any) -> str:
    found = error.errors()
    # A list that has lost its wrong items is too short: its items' errors say what is wrong.
    within = {e["loc"][:i] for e in found for i in range(len(e["loc"]))}
    shown = [e for e in found if not (e["type"] == "too_short" and e["loc"] in within)]
    return "\n".join(_explain_one(e, root, path, data) for e in shown)


def _explain_one(error: ErrorDetails, root: yaml.Node, path: Path, data: Any) -> str:
    location = _without_tags(error["loc"])
    line = _line_of(root, location)
    field = ".".join(str(part) for part in location) or "the recipe"
    kind, context, given = error["type"], error.get("ctx", {}), error["input"]
    if kind == "extra_forbidden":
        known = _known_fields(location[:-1], data)
        close = did_you_mean(str(location[-1]), known) or "."
        message = f"unknown field{close} Allowed here: {', '.join(known)}"
    elif kind == "union_tag_invalid":
        tag, word = context["discriminator"].strip("'"), context["tag"]
        names = context["expected_tags"].strip("'").split("', '")
        message = (
            f"unknown {tag} '{word}'{did_you_mean(word, names) or '.'} Allowed: {', '.join(names)} "
            "(`curate steps` describes them)"
        )
    elif kind == "union_tag_not_found":
        message = f"needs the field {context['discriminator']} that says what it is"
    elif kind == "model_attributes_type" and location[0] in TAGS:
        word = given if isinstance(given, str) else "NAME"
        message = f"must be a mapping, such as `{TAGS[str(location[0])]}: {word}`"
    else:
        message = plain(error)
        if kind != "missing" and not isinstance(given, dict):
            message += f" (given: {_short(given)})"
    return f"{path}:{line}: {field}: {message}"


def _short(value: Any) -> str:
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):  # a number of thousands of digits; a map within itself
        text = f"a {type(value).__name__}"
    text = without_credentials(text)
    return text if len(text) < 60 else text[:57] + "..."


def _without_tags(location: tuple[str | int, ...]) -> Location:
    """Leave out the parts of pydantic's location that are no part of the file.

    These are the step's name in ``steps, 3, inductor, target``, and what marks a key of a mapping.
    """
    if len(location) > 2 and location[0] in TAGS:
        location = location[:2] + location[3:]
    return tuple(part for part in location if part != "[key]")


def _line_of(node: yaml.Node, location: Location) -> int:
    """Return the 1-based line of the deepest part of a location that the file has."""
    line = int(node.start_mark.line)
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == part), None)
            if found is None:
                break
            line, node = int(found[0].start_mark.line), found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            if part >= len(node.value):
                break
            node = node.value[part]
            line = int(node.start_mark.line)
        else:
            break
    return line + 1


def _known_fields(location: Location, data: Any) -> list[str]:
    """Return the fields allowed at a location, from the JSON Schema."""
    schema = json_schema()
    definitions = schema["$defs"]
    node, place = schema, data
    for part in location:
        place = place[part]
        node = node["items"] if isinstance(part, int) else node["properties"][part]
        node = _resolve(node, place, definitions)
    return list(node.get("properties", {}))


def _resolve(node: dict[str, Any], place: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in node:  # or null
        node = next(one for one in node["anyOf"] if "$ref" in one)
    if "discriminator" in node:
        mapping = node["discriminator"]["mapping"]
        tag = place.get(node["discriminator"]["propertyName"])
        node = {"$ref": mapping[tag]}
    if "$ref" in node:
        resolved = definitions[node["$ref"].rsplit("/", 1)[1]]
        assert isinstance(resolved, dict)
        return resolved
    return node


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of recipes, for editors and for ``schemas/recipe.schema.json``."""
    schema = TypeAdapter(Recipe).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
