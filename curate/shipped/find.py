"""Where the recipes that come with curate lie, and by which names they are found."""

from __future__ import annotations

import re
from pathlib import Path

from curate.wording import did_you_mean


def recipe_folder() -> Path:
    """Return the folder of the recipes: here if a wheel is installed, else that of the checkout."""
    installed = Path(__file__).parent / "recipes"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "recipes"


def recipe_names() -> list[str]:
    """Return the names of the recipes, sorted."""
    return sorted(path.stem for path in recipe_folder().glob("*.yaml"))


def find_recipe(path: Path) -> Path:
    """Return the file of a recipe, given by its path or, where there is none, by its name."""
    named = not path.is_file() and str(path) in recipe_names()
    return recipe_folder() / f"{path}.yaml" if named else path


def hint(path: Path) -> str:
    """Return what to say of a recipe that is not there."""
    known = did_you_mean(path.stem, recipe_names())
    return f"{known or ';'} `curate recipes` lists those that come with curate"


def descriptions() -> dict[str, str]:
    """Return, by the recipes' names, the first sentence of what each says of itself."""
    import yaml

    found = {}
    for name in recipe_names():
        data = yaml.safe_load((recipe_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
        found[name] = re.split(r"(?<=\.)\s", data["description"].strip())[0]
    return found
