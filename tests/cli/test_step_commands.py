from __future__ import annotations

import pytest
from recipe_for_tests import curate

from curate.registry import kinds_by_name, summary


def test_all_sources_steps_and_formats_are_listed_with_a_line() -> None:
    ran = curate("steps")
    assert ran.exit_code == 0, ran.output
    first = [line.split()[0] for line in ran.output.splitlines() if line[:3].strip()]
    words = []
    for group, kinds in kinds_by_name().items():
        words += [f"{group.capitalize()}:", *kinds]
    assert [word for word in first if word in words] == words
    plain = " ".join(ran.output.split())
    for kinds in kinds_by_name().values():
        for kind in kinds.values():
            assert summary(kind) in plain


@pytest.mark.parametrize(
    "name", dict.fromkeys(word for kinds in kinds_by_name().values() for word in kinds)
)
def test_every_option_of_each_is_described(name: str) -> None:
    ran = curate("steps", name)
    assert ran.exit_code == 0, ran.output
    plain = " ".join(ran.output.split())
    for group, kinds in kinds_by_name().items():
        if name not in kinds:
            continue
        assert f"{group[:-1]} {name}: {summary(kinds[name])}" in plain
        for option, field in kinds[name].model_fields.items():
            if option != group[:-1]:
                assert (
                    field.description
                    and f"{option} {' '.join(field.description.split())} [" in plain
                )


def test_types_and_defaults_are_in_words() -> None:
    plain = " ".join(curate("steps", "verify").output.split())
    assert '[cpu | cuda | hip; default: "cpu"]' in plain
    assert "[whole number at least 1 and at most 100; default: 8]" in plain
    assert "takes rows of pair, sample" in plain
    assert "[text; required]" in curate("steps", "teacher").output
    both = curate("steps", "kernels").output
    assert "step kernels: " in both and "format kernels: " in both


def test_a_name_that_is_nearly_one_is_told() -> None:
    ran = curate("steps", "verfy")
    assert ran.exit_code == 2 and "did you mean 'verify'?" in ran.output
    ran = curate("steps", "nothing like it")
    assert ran.exit_code == 2 and "; `curate steps` lists all" in ran.output
