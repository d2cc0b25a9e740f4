"""The folder of a data set, replaced by a new one by renames alone.

    <output>/<recipe>            the data set
    <output>/.<recipe>.new       the one that is being written; whole before it is renamed
    <output>/.<recipe>.old       the one before it, for the moment that the renames take

A run that is cut short leaves at most a folder of the last two, and `recover` does the rest. What a
user put into the old folder is moved to the new one.
"""

from __future__ import annotations

import os
from pathlib import Path

from curate.files import Damaged, is_temporary, read_sealed, remove, sync, writing

RUN_FILE = "run.json"


class InTheWay(Exception):
    """Where a data set is to be, there is something else; the message says what to do."""


def new_folder(final: Path) -> Path:
    """Return the folder in which a data set is written before it gets its name."""
    return final.with_name(f".{final.name}.new")


def _old_folder(final: Path) -> Path:
    return final.with_name(f".{final.name}.old")


def check_place(final: Path) -> None:
    """Raise `InTheWay` where a data set's folder is something else: a link, a user's folder."""
    what = ""
    if final.is_symlink():
        what = "a link"
    elif final.exists() and not final.is_dir():
        what = "a file"
    elif final.is_dir() and any(final.iterdir()) and not (final / RUN_FILE).exists():
        what = f"a folder without a {RUN_FILE}, so that no run wrote it"
    if what:
        raise InTheWay(
            f"{final}: is {what}, and the data set is to be written there; move it away, rename "
            "the recipe, or choose another --output"
        )


def recover(final: Path) -> None:
    """Finish, or take back, what a run that was cut short began to replace."""
    old = _old_folder(final)
    if old.exists() and not final.exists():
        with writing(final):
            old.rename(final)
    _keep_own_files(old, final)
    remove(new_folder(final))


def replace(final: Path) -> None:
    """Give the data set in `new_folder` its name, and remove the one that had it.

    Raises:
        CannotWrite: the operating system refused. `recover` mends what was begun.
    """
    new, old = new_folder(final), _old_folder(final)
    with writing(final):
        for folder, _, names in os.walk(new):
            for name in names:
                sync(Path(folder, name))
            sync(Path(folder))
        if final.exists():
            final.rename(old)
        new.rename(final)
        sync(final.parent)
    _keep_own_files(old, final)


def _keep_own_files(old: Path, final: Path) -> None:
    """Move what is not of the old data set to the new one, and remove the rest."""
    if not old.exists():
        return
    try:
        known = read_sealed(old / RUN_FILE)
        ours = {RUN_FILE, *known["files"]}
    except (Damaged, KeyError):
        # Nobody can tell a user's files from ours: keep them all, out of the data set's way.
        with writing(final):
            old.rename(_free(final.with_name(f"{final.name}.kept")))
        return
    with writing(final):
        for folder, folders, names in os.walk(old):
            links = [name for name in folders if Path(folder, name).is_symlink()]
            for name in [*names, *links]:
                file = Path(folder, name)
                path = file.relative_to(old)
                if path.as_posix() not in ours and not is_temporary(name):
                    target = _free(final / path)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    file.rename(target)
    remove(old)


def _free(path: Path) -> Path:
    """Return a path, or one with a number after it where something has that name."""
    number, free = 1, path
    while free.exists() or free.is_symlink():
        free = path.with_name(f"{path.name}.{number}")
        number += 1
    return free
