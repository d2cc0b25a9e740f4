from itertools import combinations

import pytest

from curate.evaluate.metrics import pass_at_k


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
