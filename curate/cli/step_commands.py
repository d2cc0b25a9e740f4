"""The command ``curate steps``: the sources, steps and formats that a recipe may name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from curate.terminal.shown import say
from curate.wording import did_you_mean

if TYPE_CHECKING:
    from curate.registry import Named

LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}
WORDS = {"string": "text", "integer": "whole number", "boolean": "true or false"}
"""What people call JSON Schema's limits and types; other types have the same word."""


def complete_word(ctx: click.Context, param: click.Parameter, word: str) -> list[CompletionItem]:
    """Return the sources, steps and formats that begin with ``word``."""
    from curate.registry import kinds_by_name

    names = dict.fromkeys(name for group in kinds_by_name().values() for name in group)
    return [CompletionItem(name) for name in names if name.startswith(word)]


@click.command()
@click.argument("name", required=False, shell_complete=complete_word)
def steps(name: str | None) -> None:
    """List the sources, steps and formats that a recipe may name; with NAME, describe one.

    The description has what it takes and makes, and its options with types and defaults.
    """
    from curate.registry import kinds_by_name, summary

    page = click.HelpFormatter(width=shutil.get_terminal_size().columns)
    groups = kinds_by_name()
    if name is None:
        for group, kinds in groups.items():
            with page.section(group.capitalize()):
                page.write_dl([(word, summary(kind)) for word, kind in kinds.items()])
        page.write_paragraph()
        page.write_text("`curate steps NAME` shows the options of one.")
        say(page.getvalue().rstrip())
        return
    found = [(group, kinds[name]) for group, kinds in groups.items() if name in kinds]
    if not found:
        words = [word for kinds in groups.values() for word in kinds]
        near = did_you_mean(name, words) or ";"
        raise click.UsageError(f"no source, step or format '{name}'{near} `curate steps` lists all")
    for number, (group, kind) in enumerate(found):
        page.write("\n" * bool(number))
        page.write_text(f"{group[:-1]} {name}: {summary(kind)}")
        with page.section("Rows"):
            page.write_dl(list(_rows(kind)))
        with page.section("Options"):
            page.write_dl(list(_options(kind, group[:-1])))
    say(page.getvalue().rstrip())


def _rows(kind: Named) -> Iterator[tuple[str, str]]:
    """Yield what a source, step or format does with rows, and the kinds or columns concerned."""
    for title, name in {
        "takes rows of": "takes",
        "shows rows of": "kinds",
        "makes rows of": "makes",
        "adds rows of": "adds",
        "reads columns": "reads",
        "sets columns": "sets",
    }.items():
        if words := getattr(kind, name, None):
            yield title, ", ".join(sorted(words))


def _options(kind: Named, tag: str) -> Iterator[tuple[str, str]]:
    """Yield the options and what is known of each; those that all steps have come last."""
    schema = kind.model_json_schema()
    shared = {name for base in kind.__mro__[1:] for name in getattr(base, "model_fields", ())}
    options: dict[str, Any] = schema["properties"]
    for name in sorted(
        options.keys() - {tag}, key=lambda name: (name in shared, list(options).index(name))
    ):
        option = options[name]
        facts = [_type(option, schema.get("$defs", {}))]
        if name in schema.get("required", ()):
            facts.append("required")
        elif option.get("default") is not None:
            facts.append(f"default: {json.dumps(option['default'])}")
        yield name, f"{option.get('description', '')} [{'; '.join(facts)}]"


def _type(schema: dict[str, Any], known: dict[str, Any]) -> str:
    """Return what values a JSON Schema allows, in words."""
    if "$ref" in schema:
        return _type(known[schema["$ref"].rsplit("/", 1)[1]], known)
    if "anyOf" in schema:
        return " or ".join(_type(one, known) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return _any_of(schema.get("enum") or [schema["const"]])
    kind = schema.get("type", "value")
    if kind == "array":
        return f"list of {_type(schema['items'], known)}"
    if kind == "object":
        keys = schema.get("propertyNames", {}).get("enum") or schema.get("properties", ())
        return f"mapping of {_any_of(keys)}" if keys else "mapping"
    limits = [f"{word} {schema[name]:.15g}" for name, word in LIMITS.items() if name in schema]
    return " ".join([WORDS.get(kind, kind), " and ".join(limits)]).rstrip()


def _any_of(words: Iterable[object]) -> str:
    return " | ".join(map(str, words))
