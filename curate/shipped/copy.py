"""Copy a recipe that comes with curate, to be changed: `curate init`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curate.shipped.find import hint, recipe_folder, recipe_names


class CannotCopy(Exception):
    """There is no such recipe, or a file is in the way; the message says which."""


def copy_recipe(name: str, target: Path) -> list[Path]:
    """Copy a recipe, and the files that it names, to another folder; return what was written.

    Args:
        name: of the recipe.
        target: the new file; the other files go next to it, where the recipe looks for them.

    Raises:
        CannotCopy: there is no such recipe, or a file is in the way; nothing is written then.
    """
    import yaml

    if name not in recipe_names():
        raise CannotCopy(f"no recipe '{name}' comes with curate{hint(Path(name))}")
    source = recipe_folder() / f"{name}.yaml"
    text = source.read_text(encoding="utf-8")
    sides = sorted(set(_side_files(yaml.safe_load(text), source.parent)))
    copies = {source.parent / side: target.parent / side for side in sides}
    for path in (target, *copies.values()):
        if path.exists():
            raise CannotCopy(f"{path}: is there already; give another FILE or move it away")
    target.parent.mkdir(parents=True, exist_ok=True)
    for old, new in copies.items():
        if old.is_dir():
            shutil.copytree(old, new, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(old, new)
    # The line for editors names a file of the checkout.
    target.write_text(re.sub(r"\A# yaml-language-server:.*\n(#\n)?", "", text), encoding="utf-8")
    return [target, *copies.values()]


def _side_files(value: Any, folder: Path) -> Iterator[str]:
    """Yield the texts in a recipe's data that name a file or a folder next to the recipe."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _side_files(part, folder)
    elif isinstance(value, str) and re.fullmatch(r"\w[\w/-]*", value):
        yield from [value] if (folder / value).exists() else []
