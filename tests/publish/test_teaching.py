from itertools import combinations

import pytest

from curate.publish.teaching import Question, pass_at_k, rates
from curate.publish.words import pass_cell


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_draws_with_a_right_answer(n: int) -> None:
    for c in range(n + 1):
        right = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            draws = [any(draw) for draw in combinations(right, k)]
            assert pass_at_k(n, c, k) == pytest.approx(sum(draws) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(2, 1, 3), (2, 3, 1), (2, 1, 0), (2, -1, 1)])
def test_pass_at_k_of_what_cannot_be_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)


def test_rates_are_means_over_questions_not_over_answers() -> None:
    easy, hard = Question("a", "convert", 1), Question("b", "convert", 1)
    again = Question("c", "convert", 2)
    given = [(easy, True)] * 2 + [(hard, False)] * 3 + [(hard, True)] + [(again, False)]
    first, second = rates(given)
    assert (first.questions, first.answers, first.correct) == (2, 6, 3)
    assert first.pass_at == {1: (1 + 1 / 4) / 2, 2: (1 + 1 / 2) / 2, 4: 1.0}
    assert first.questions_at == {1: 2, 2: 2, 4: 1}
    assert [pass_cell(first, k) for k in (1, 2, 4)] == ["62.5%", "75.0%", "100.0% (1)"]
    assert (second.attempt, second.pass_at, pass_cell(second, 2)) == (2, {1: 0.0}, "")
