import pytest

from curate.harvest.modules.documented import documentation

TEXT = '''
class Model:
    """A layer.

    Args:
        dim (int): width
    """

    def forward(self, x, y, mask, z, w, n):
        """Mix.

        Args:
            x (torch.Tensor): input with shape [b x s_x x d]
                for the query
            y (Optional[torch.Tensor]): of shape (N, H, W) or (N, 1, H, W)
            mask: boolean (True where it counts), or [b, s, h_d // 2]

        Returns:
            torch.Tensor: shape (b, s)
        """
        # z has shape [batch, 16]
        n = n * 2
        a, b = n.shape
        w = rearrange(w, "b c h w -> b (h w) c")
        return x
'''


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("x", [("b", "s_x", "d")]),
        ("y", [("N", "H", "W"), ("N", "1", "H", "W")]),
        ("mask", []),
        ("z", [("batch", "16")]),
        ("w", [("b", "c", "h", "w")]),
        ("n", []),
    ],
)
def test_shapes_of_an_argument(name: str, shapes: list[tuple[str, ...]]) -> None:
    assert documentation(TEXT, "Model").shapes(name) == shapes


def test_what_is_said_of_an_argument_ends_with_the_next() -> None:
    about = documentation(TEXT, "Model").about("x")
    assert "for the query" in about and "Optional" not in about


def test_a_class_without_words() -> None:
    told = documentation("class Model:\n    pass\n", "Model")
    assert told.about("x") == "" and told.shapes("x") == []
