from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from curate.clean.forms.overlap import WINDOW, grams, hash_grams
from curate.clean.forms.parts import PlainProgram

CODE = """
import torch
import torch.nn.functional as F

def scale(x, width):
    total = x.sum(dim=-1) / width
    if total.numel() > 4:
        total = F.relu(total, inplace=True)
    return torch.cat([x, total], dim=0)
"""


def of(code: str) -> set[int]:
    program = PlainProgram(code)
    return set(grams(program, program.body).tolist())


def rename_proof(run: list[str]) -> tuple[str | int, ...]:
    """Return a run with each own name as the distance to its last occurrence in it."""
    return tuple(
        next((d for d in range(1, i + 1) if run[i - d] == token), 0) if token[0] == "%" else token
        for i, token in enumerate(run)
    )


@given(st.lists(st.sampled_from(["%a", "%b", "%c", "Add", "torch.sum", "int"]), max_size=60))
def test_runs_have_one_hash_exactly_when_they_are_one_renamed(tokens: list[str]) -> None:
    runs = [tokens[i : i + WINDOW] for i in range(len(tokens) - WINDOW + 1)]
    hashes = hash_grams(tokens)
    assert len(hashes) == len({rename_proof(run) for run in runs})
    assert (np.diff(hashes.astype(np.int64)) > 0).all()
    alone = {int(hash_grams(run)[0]) for run in runs}
    assert alone == set(hashes.tolist())


def test_names_numbers_and_imports_do_not_matter() -> None:
    other = CODE.replace("total", "t").replace("width", "n").replace("> 4", "> 1024")
    other = other.replace("import torch.nn.functional as F", "from torch.nn import functional as G")
    assert of(other.replace("F.relu", "G.relu")) == of(CODE)


def test_libraries_keywords_and_strings_matter() -> None:
    for old, new in (("F.relu", "F.gelu"), ("dim=0", "axis=0"), ("inplace=True", "inplace=False")):
        assert of(CODE.replace(old, new)) != of(CODE)


def test_an_edit_changes_only_the_runs_that_it_lies_in() -> None:
    edited = CODE.replace("x.sum(", "x.mean(")
    assert len(of(edited)) == len(of(CODE))
    assert 0 < len(of(CODE) - of(edited)) <= WINDOW


def test_a_name_whose_binding_was_taken_away_is_still_the_programs() -> None:
    cut = CODE.replace("    total = x.sum(dim=-1) / width\n", "").replace(
        "        total = F.relu", "        other = F.relu"
    )
    assert of(cut) & of(CODE)
    assert of(cut) == of(cut.replace("total", "unheard_of"))


def test_short_programs_have_none() -> None:
    assert of("x = 1\n") == set()
