"""How often a model's answers are right."""

from __future__ import annotations

from math import comb


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that one of k answers is right, given that c of n were.

    Estimated without bias as 1 - C(n-c, k) / C(n, k) (Chen et al., "Evaluating Large Language
    Models Trained on Code", 2021, section 2.1).

    Raises:
        ValueError: k is more than n, or c is.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} answers of which {c} are right")
    return 1 - comb(n - c, k) / comb(n, k)
