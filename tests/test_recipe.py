import json
import re
from pathlib import Path
from typing import get_args

import pytest

from curate.recipe import RecipeError, json_schema, load_recipe
from curate.registry import AnyFormat, AnySource, AnyStep

ROOT = Path(__file__).parent.parent

GOOD = """\
name: small
sources:
  - source: torch_ops
    compositions: 4
steps:
  - step: inductor
    timeout_s: 90
  - step: normalize
formats:
  - format: messages
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_recipes_are_good(recipe: Path) -> None:
    assert load_recipe(recipe).name == recipe.stem


def test_the_schema_in_the_repository_is_the_current_one() -> None:
    stored = json.loads((ROOT / "schemas/recipe.schema.json").read_text())
    assert stored == json_schema(), "run: curate schema > schemas/recipe.schema.json"


def test_every_option_is_described() -> None:
    for name, part in json_schema()["$defs"].items():
        for option, facts in part.get("properties", {}).items():
            is_tag = option in ("step", "source", "format")
            assert is_tag or facts.get("description"), f"{name}.{option} has no description"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((": small", ": Small Data"), r":1: name: must be of a-z, 0-9, - and _, and begin with"),
        (
            ("compositions", "composition"),
            r":4: sources\.0\.composition: unknown field; did you mean",
        ),
        (
            ("compositions: 4", "compositions: many"),
            r":4: sources\.0\.compositions: must be a whole number \(given: \"many\"\)",
        ),
        (
            ("step: normalize", "step: normalise"),
            r":8: steps\.1: unknown step 'normalise'; did you mean 'normalize'\? Allowed: l",
        ),
        (
            ("step: normalize", "step: compile\n    targets: [cuda:91]"),
            r":9: steps\.1\.targets\.0: no target 'cuda:91'.*\(given: \"cuda:91\"\)$",
        ),
        (("- step: normalize", "- stepp: normalize"), r":8: steps\.1: needs the field 'step'"),
        (("name: small", "name: small\nname: other"), r":2: 'name' is given twice"),
        (("steps:", "steps: ["), r"is not valid YAML"),
        (
            ("sources:\n  - source: torch_ops\n    compositions: 4\n", ""),
            r"sources: is missing$",
        ),
        (("compositions", "sea"), r"4: sources\.0\.sea: unknown field\. Allowed here: "),
        (("step: normalize", "step: sea"), r":8: steps\.1: unknown step 'sea'\. Allowed: "),
        (("torch_ops", "torch_op"), r"unknown source 'torch_op'; did you mean 'torch_ops'\?"),
        (("- format: messages", "- format: mesages"), r"did you mean 'messages'\?"),
        (
            ("step: normalize", "step: compile\n    targets: [cuda:9O]"),
            r"no target 'cuda:9O'; did you mean 'cuda:90'\?",
        ),
        (("- step: normalize", "- normalize"), r"be a mapping, such as `step: normalize`$"),
        (("timeout_s: 90", "variants: 3"), r":7: steps\.0\.variants: must be at most 2"),
        (("timeout_s: 90", "variants: 0"), r":7: steps\.0\.variants: must be at least 1"),
        (("step: normalize", "step: verify\n    timing: true"), r":8: steps\.1: timing needs"),
        (("seed", "seed"), None),
    ],
)
def test_a_mistake_is_told_with_line_and_field(
    tmp_path: Path, change: tuple[str, str], message: str | None
) -> None:
    path = write(tmp_path, GOOD.replace(*change))
    if message is None:
        assert load_recipe(path).steps[0].name == "inductor"
        return
    with pytest.raises(RecipeError, match=message):
        load_recipe(path)


RAW = (
    r"Input should|Value error|String should|Tuple should|List should|valid \\w+|\\[key\\]|pattern"
)
"""How pydantic speaks."""


@pytest.mark.parametrize(
    "value", ["null", "x y", "''", "-1", "1.5", "[]", "{}", "{a: 1}", "[1]", "1000000000"]
)
def test_whatever_is_wrong_is_told_in_plain_words(tmp_path: Path, value: str) -> None:
    told = 0
    for key, union in {"sources": AnySource, "steps": AnyStep, "formats": AnyFormat}.items():
        for kind in get_args(get_args(union)[0]):
            tag = key[:-1]
            (word,) = get_args(kind.model_fields[tag].annotation)
            for option in kind.model_fields.keys() - {tag}:
                parts = {"sources": "[{source: torch_ops}]", "steps": "[]", "formats": "[]"}
                parts[key] = f"[{{{tag}: {word}, {option}: {value}}}]"
                lines = [f"{name}: {part}" for name, part in {"name": "a", **parts}.items()]
                try:
                    load_recipe(write(tmp_path, "\n".join(lines)))
                except RecipeError as error:
                    told += 1
                    assert not re.search(RAW, str(error)), error
                    assert "unknown field" not in str(error) or "Allowed here: " in str(error)
    assert told > 10


def bomb(levels: int) -> str:
    """Return a list of ten of a list of ten of …, by aliases."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, levels):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("name: small", "name: cache"), r":1: name: .*'cache' holds what recipes"),
        (GOOD.replace("name: small", f"name: {'a' * 300}"), r":1: name: .*at most 100 characters"),
        (GOOD.replace("format: messages", "format: pairs\n    config: lost"), "config 'lost'"),
        (
            GOOD.replace("format: messages", "format: pairs\n    config: ../a"),
            r"formats\.0.*config",
        ),
        ("seed: 2026-99-99\n" + GOOD, r":1: .*2026-99-99.* is no timestamp"),
        (f"seed: {'9' * 5000}\n{GOOD}", r":1: .*is no int"),
        (f"seed: 0x{'f' * 5000}\n{GOOD}", r":1: .*is no int .*too large"),
        ("seed: !!bool maybe\n" + GOOD, r":1: .*maybe.* is no bool"),
        ("description: " + "[" * 20_000 + "]" * 20_000 + "\n" + GOOD, "more than 100 deep"),
        ("".join("  " * i + "a:\n" for i in range(3000)), "more than 100 deep"),
        ("description: &a [*a]\n" + GOOD, r":1: .*holds an alias of itself"),
        (bomb(9) + GOOD, "more than 200,000 values"),
    ],
)
def test_a_text_that_no_reader_survives_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as told:
        load_recipe(write(tmp_path, text))
    assert len(str(told.value)) < 1000


@pytest.mark.parametrize("value", ["2026-99-99", "9" * 5000, "[" * 20_000, "&a [*a]"])
def test_a_setting_that_no_reader_survives_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(RecipeError, match="--set seed=") as told:
        load_recipe(write(tmp_path, GOOD), (f"seed={value}",))
    assert len(str(told.value)) < 1000


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("compositions: 4", "compositions: -1\n    colour: red"))
    with pytest.raises(RecipeError) as error:
        load_recipe(path)
    assert len(str(error.value).splitlines()) == 2


def test_settings_replace_values(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    recipe = load_recipe(
        path, ("steps.inductor.timeout_s=80", "sources.0.compositions=9", "seed=3")
    )
    assert recipe.steps[0].options()["timeout_s"] == 80
    assert recipe.sources[0].options()["compositions"] == 9
    assert recipe.seed == 3
    for wrong, message in [
        (
            "steps.inducter.target=x",
            "no 'inducter' there; did you mean 'inductor'\\? It has inductor, normalize",
        ),
        ("seed", "write path=value"),
        ("steps.inductor.colour=1", "unknown field"),
    ]:
        with pytest.raises(RecipeError, match=message):
            load_recipe(path, (wrong,))


WITH_SPLIT = GOOD.replace(
    "formats:",
    "  - step: dedupe\n    column: triton\n    similarity: 0.8\n  - step: split\nformats:",
)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed=true", r": seed: must be a number, and not true or false"),
        ("sources.0.compositions=true", r":4: sources\.0\.compositions: must be a number"),
        ("steps.dedupe.similarity=true", r":11: steps\.2\.similarity: must be a number"),
        ("steps.inductor.memory_mb=100000000000000000000", r"steps\.0\.memory_mb: .*16777216"),
        ("steps.inductor.timeout_s=1.0e+20", r"steps\.0\.timeout_s: .*604800"),
        ("steps.inductor.timeout_s=.inf", r"steps\.0\.timeout_s: .*604800"),
        ("steps.3={step: split, validation: 0.7, test: 0.6}", "leave no rows for train"),
        ("steps.3={step: split, validation: 0.5, test: 0.5}", "leave no rows for train"),
        ("formats=[]", r":13: formats: without any, the data set has no rows: .*`- format: pairs`"),
        (
            "sources.0={source: local, path: nowhere}",
            r":3: sources\.0\.path: nowhere: no such fold",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, setting: str, message: str) -> None:
    path = write(tmp_path, WITH_SPLIT)
    assert load_recipe(path, ("steps.split.validation=0.5", "steps.split.test=0.4"))
    with pytest.raises(RecipeError, match=message):
        load_recipe(path, (setting,), whole=True)


def test_a_recipe_in_the_making_needs_no_formats(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.partition("formats:")[0])
    assert not load_recipe(path).formats
    with pytest.raises(RecipeError, match=r":1: formats: without any, the data set has no rows"):
        load_recipe(path, whole=True)


def test_two_formats_may_not_write_one_config(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="two formats write the config 'messages'"):
        load_recipe(write(tmp_path, GOOD + "  - format: messages\n"))


CLOSED = """\
name: closed
sources:
  - source: local
    path: .
steps:
  - step: licenses
  - step: modules
  - step: closure
  - step: inputs
  - step: inductor
formats:
  - format: messages
"""


def test_licenses_follow_closure(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="put `- step: licenses` after it"):
        load_recipe(write(tmp_path, CLOSED))


def test_kernels_are_shown_when_they_stand_alone(tmp_path: Path) -> None:
    text = "name: k\nsources: [{source: local, path: .}]\nsteps: [{step: kernels}%s]\n"
    text += "formats: [{format: kernels}]\n"
    with pytest.raises(
        RecipeError,
        match=r"`kernels` reads .* `triton`, .* put .*closure`",
    ):
        load_recipe(write(tmp_path, text % ""))
    load_recipe(write(tmp_path, text % ", {step: closure}, {step: licenses}"))


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words"])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RecipeError, match="is a mapping"):
        load_recipe(write(tmp_path, text))


HASH = "sha256:" + "5" * 64
PYPI = "  - source: pypi\n    packages:\n      - {} --hash=" + HASH + "\n"
GIT = (
    """\
  - source: git
    repositories:
      - url: {}
        commit: """
    + "a" * 40
    + "\n"
)
LOCAL = "  - source: local\n    path: {}\n"


@pytest.mark.parametrize(
    ("first", "second", "field", "line"),
    [
        (LOCAL.format("{0}"), LOCAL.format("{0}/"), "path", 6),
        (LOCAL.format("{0}"), LOCAL.format("{0}/../code"), "path", 6),
        (LOCAL.format("{0}"), LOCAL.format("{0}/../link"), "path", 6),
        (LOCAL.format("{0}"), LOCAL.format("{0}") + "    include: [a.py]\n", "path", 6),
        (PYPI.format("foo==1.0"), PYPI.format("foo==1.0"), "packages.0", 8),
        (PYPI.format("Foo_Bar==1.0"), PYPI.format("foo-bar==1.0"), "packages.0", 8),
        (GIT.format("https://a.org/x"), GIT.format("https://a.org/x"), "repositories.0", 9),
    ],
)
def test_one_source_twice_is_a_mistake(
    first: str, second: str, field: str, line: int, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "code")
    text = "name: small\nsources:\n" + (first + second).format(tmp_path / "code") + "steps: []\n"
    path = write(tmp_path, text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert str(caught.value) == (
        f"{path}:{line}: sources.1.{field}: is read already, by sources.0.{field}; keep one"
    )


def test_one_pin_twice_in_one_source_is_a_mistake(tmp_path: Path) -> None:
    pins = f"      - Foo_Bar==1.0 --hash={HASH}\n"
    path = write(tmp_path, GOOD.replace("steps:", PYPI.format("foo-bar==1.0") + pins + "steps:"))
    with pytest.raises(RecipeError, match=r":8: sources\.1\.packages\.1: is read already"):
        load_recipe(path)


def test_two_wholes_of_the_same_operators_are_a_mistake(tmp_path: Path) -> None:
    twice = "  - source: torch_ops\n    compositions: 4\n"
    path = write(tmp_path, GOOD.replace("steps:", twice + "steps:"))
    with pytest.raises(RecipeError, match=r":5: sources\.1: is read already, by sources\.0;"):
        load_recipe(path)
