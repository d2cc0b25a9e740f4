"""Whether tensors have memory in common."""

import pytest
import torch

from curate.verify.protocol.places import TensorPlace, overlap


def place(offset: int, shape: tuple[int, ...], stride: tuple[int, ...], storage: int = 1):
    return TensorPlace(storage, torch.float32, shape, stride, offset)


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        (place(0, (4,), (1,)), place(0, (4,), (1,)), True),
        (place(0, (4,), (2,)), place(1, (4,), (2,)), False),  # every second element
        (place(0, (4, 4), (8, 1)), place(4, (4, 4), (8, 1)), False),  # halves of rows
        (place(0, (4, 5), (8, 1)), place(4, (4, 4), (8, 1)), True),
        (place(0, (4,), (1,)), place(3, (4,), (1,)), True),
        (place(0, (0,), (1,)), place(0, (0,), (1,)), False),
        (place(0, (4,), (1,)), place(0, (4,), (1,), 2), False),
        (place(0, (2**21,), (1,)), place(0, (2**21,), (1,)), True),
    ],
)
def test_places_overlap_where_an_element_of_one_is_one_of_the_other(
    one: TensorPlace, other: TensorPlace, meets: bool
) -> None:
    assert overlap([one, other]) is meets
    assert overlap([place(2, (), (), 9), other, one]) is meets
    assert overlap([one], [place(2, (), (), 9), other]) is meets
