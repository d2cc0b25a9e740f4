"""`curate check` finds every misplaced step."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.recipe import RecipeError, load_recipe

SHIPPED = Path(__file__).parent.parent / "recipes/kernelbook_messages.yaml"

LOCAL = "name: small\nsources: [{source: local, path: .}]\n"
OPERATORS = "name: small\nsources: [{source: torch_ops, compositions: 4}]\n"


def recipe(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            OPERATORS + "steps:\n  - step: signature\n",
            r":4: steps: `signature` takes kernel rows, and none come to it: put `- step: kernels`",
        ),
        (
            OPERATORS + "steps:\n  - step: compile\n    targets: [cuda:90]\n",
            r":4: steps: `compile` takes .*pair.* rows, and none come to it: put",
        ),
        (
            OPERATORS + "steps:\n  - step: dedupe\n    column: wiring\n  - step: wiring\n",
            r":4: steps: `dedupe` reads the column `wiring`, .* put `- step: wiring` before it",
        ),
        (
            OPERATORS + "steps:\n  - step: decontaminate\n  - step: wiring\n",
            r":4: steps: `decontaminate` reads the column `wiring`: put `- step: wiring` before it",
        ),
        (
            LOCAL + "steps:\n  - step: modules\n  - step: inputs\n  - step: modules\n",
            r":6: steps: `modules` takes file rows, and none come to it: put `- source: git`",
        ),
        (
            LOCAL + "steps:\n  - step: modules\n  - step: closure\n  - step: inputs\n"
            "  - step: inductor\nformats:\n  - format: pairs\n",
            r":9: formats: `pairs` reads the column `license`, which no longer holds when "
            r"`closure` has run: put `- step: licenses` after it",
        ),
        (
            OPERATORS + "steps:\n  - step: normalize\nformats:\n  - format: pairs\n",
            r":6: formats: `pairs` reads the column `license`",
        ),
    ],
)
def test_a_misplaced_step_is_named_with_what_to_do(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe(recipe(tmp_path, text))


@pytest.mark.parametrize("step", ["modules", "inductor", "wiring"])
def test_no_recipe_goes_without_a_step_that_others_build_on(tmp_path: Path, step: str) -> None:
    lines = SHIPPED.read_text().splitlines(keepends=True)
    kept, left_out = [], False
    for line in lines:
        if line.startswith("  - ") or not line.startswith(" "):
            left_out = line.startswith(f"  - step: {step}")
        kept += [] if left_out else [line]
    with pytest.raises(RecipeError, match=step):
        load_recipe(recipe(tmp_path, "".join(kept)))


def test_licenses_must_follow_closure_in_a_shipped_recipe(tmp_path: Path) -> None:
    text = SHIPPED.read_text()
    first = text.index("- step: licenses") + 1
    without = text[:first] + text[first:].replace("- step: licenses", "- step: parse", 1)
    # Problems from operators bring a license, and those from modules have none that holds.
    with pytest.raises(RecipeError, match="put `- step: licenses` after it"):
        load_recipe(recipe(tmp_path, without))
