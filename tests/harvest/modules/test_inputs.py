import textwrap
from typing import Any

import pytest

from curate.harvest.modules.inputs import Inputs
from curate.harvest.modules.taskfile import make_positional
from curate.rows import make_origin, make_row
from curate.step import Context, Drop, Keep, Outcome


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    Inputs(step="inputs").setup(Context())


def apply(body: str, head: str = "", **options: Any) -> Outcome:
    text = f"import torch\nfrom torch import nn\n\n\n{textwrap.dedent(head)}\n\n"
    text += "class Model(nn.Module):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    origin = make_origin("local", path="a.py", symbol="A")
    row = make_row("module", text, origin, text=text, entry_point="Model")
    return Inputs(step="inputs", **options).apply(row, Context())


def task(body: str, head: str = "", **options: Any) -> dict[str, Any]:
    """Run the finished task and return its names, its arguments and its output."""
    outcome = apply(body, head, **options)
    assert isinstance(outcome, Keep), outcome
    (row,) = outcome.rows
    assert row["kind"] == "task"
    names: dict[str, Any] = {}
    exec(row["reference"], names)
    model = names["Model"](*names["get_init_inputs"]())
    inputs = names["get_inputs"]()
    return {"row": row, "inputs": inputs, "output": model.eval()(*inputs)}


def shapes(found: dict[str, Any]) -> list[tuple[int, ...]]:
    return [tuple(given.shape) for given in found["inputs"]]


def dropped(body: str, head: str = "", **options: Any) -> str:
    outcome = apply(body, head, **options)
    assert isinstance(outcome, Drop), outcome
    return outcome.reason


INIT = "def __init__(self{}):\n    super().__init__()\n    {}\n"


def test_convolution_gets_an_image_of_realistic_size() -> None:
    found = task(
        INIT.format(
            ", in_channels, out_channels", "self.c = nn.Conv2d(in_channels, out_channels, 3)"
        )
        + "def forward(self, x):\n    return self.c(x).relu()\n"
    )
    ((batch, channels, height, width),) = shapes(found)
    assert batch >= 8 and channels == 64 and height == width >= 32


def test_linear_takes_its_width_from_the_layer() -> None:
    found = task(
        INIT.format("", "self.a = nn.Linear(48, 96)\n    self.b = nn.Linear(96, 48)")
        + "def forward(self, x):\n    return x + self.b(self.a(x).relu())\n"
    )
    assert shapes(found)[0][-1] == 48


def test_attention_with_keyword_only_constructor() -> None:
    found = task(
        INIT.format(
            ", *, dim, heads=4, dim_head",
            "self.h = heads\n    self.qkv = nn.Linear(dim, 3 * heads * dim_head)\n"
            "    self.out = nn.Linear(heads * dim_head, dim)",
        )
        + """
def forward(self, x):
    b, n, c = x.shape
    q, k, v = self.qkv(x).reshape(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4).unbind(0)
    y = (q @ k.transpose(-2, -1)).softmax(-1) @ v
    return self.out(y.transpose(1, 2).reshape(b, n, -1))
"""
    )
    assert shapes(found)[0][1] >= 128
    assert found["output"].shape == found["inputs"][0].shape


def test_embedding_gets_indices_within_its_table() -> None:
    found = task(
        INIT.format("", "self.e = nn.Embedding(37, 16)")
        + "def forward(self, tokens):\n    return self.e(tokens) * 2\n"
    )
    (tokens,) = found["inputs"]
    assert not tokens.is_floating_point()
    assert set(tokens.unique().tolist()) <= set(range(37))


def test_two_inputs_of_different_width() -> None:
    found = task(
        INIT.format("", "self.a = nn.Linear(24, 40)\n    self.b = nn.Linear(56, 40)")
        + "def forward(self, x, y):\n    return self.a(x) * self.b(y)\n"
    )
    assert [shape[-1] for shape in shapes(found)] == [24, 56]


def test_feature_map_given_as_tokens_with_its_size() -> None:
    found = task(
        INIT.format(", dim", "self.c = nn.Conv2d(dim, dim, 3, padding=1)")
        + """
def forward(self, x, H, W):
    b, n, c = x.shape
    return self.c(x.transpose(1, 2).reshape(b, c, H, W)).flatten(2).transpose(1, 2)
"""
    )
    x, height, width = found["inputs"]
    assert x.shape[1] == height * width


def test_fixed_image_size_is_found() -> None:
    found = task(
        INIT.format(
            ", img_size=56, patch=8",
            "self.size = img_size\n    self.p = nn.Conv2d(3, 32, patch, patch)\n"
            "    self.pos = nn.Parameter(torch.ones(1, (img_size // patch) ** 2, 32))",
        )
        + """
def forward(self, x):
    assert x.shape[-1] == self.size, f"expected {self.size}"
    return self.p(x).flatten(2).transpose(1, 2) + self.pos
"""
    )
    assert shapes(found)[0][1:] == (3, 56, 56)


def test_logarithm_gets_positive_inputs() -> None:
    found = task("def forward(self, x):\n    return x.log1p().sqrt()\n")
    assert float(found["inputs"][0].min()) >= 0


def test_layers_given_as_functions_where_classes_are_refused() -> None:
    head = """
    from inspect import isfunction
    from typing import Callable

    def make(norm, **k):
        assert isfunction(norm)
        return norm(**k)
    """
    task(
        INIT.format(
            ", channels: int, normalization: Callable[..., nn.Module]",
            "self.n = make(normalization, num_features=channels)",
        )
        + "def forward(self, x):\n    return self.n(x) + x\n",
        head,
    )


def test_same_module_gives_the_same_bytes() -> None:
    body = "def forward(self, x, y):\n    return x * y\n"
    assert task(body)["row"] == task(body)["row"]


@pytest.mark.parametrize(
    ("reason", "init", "forward"),
    [
        ("needs_config", INIT.format(", config", "self.n = config.n"), "return x * self.n"),
        ("constructor_unknown", INIT.format(", zzz", "self.z = zzz"), "return x"),
        ("no_inputs_found", "", "raise ValueError('never')"),
        ("no_compute", "", "return x.transpose(0, 1)"),
        ("no_compute", "", "return torch.diff(x, n=0)"),
        ("no_compute", "", "return torch.roll(x, shifts=0)"),
        ("no_compute", INIT.format("", "self.d = nn.Dropout(0.5)"), "return self.d(x * 1.0)"),
        ("no_tensor_output", "", "x * 2\n    return None"),
        ("no_tensor_output", "", "return {'y': x * 2}"),
        ("constant_output", "", "return x * 0 + 1"),
        ("nondeterministic", "", "return x + torch.rand(())"),
        ("not_finite", "", "return x / 0"),
        ("side_effects", "", "return x.mul_(2)"),
        (
            "side_effects",
            INIT.format("", "self.register_buffer('n', torch.zeros(()))"),
            "self.n += 1\n    return x + self.n",
        ),
        ("too_large", INIT.format("", "self.l = nn.Linear(9000, 9000)"), "return self.l(x)"),
    ],
)
def test_each_loss_has_its_reason(reason: str, init: str, forward: str) -> None:
    assert dropped(f"{init}def forward(self, x):\n    {forward}\n") == reason


@pytest.mark.parametrize(
    "forward",
    ["torch.relu(x)", "torch.nan_to_num(x)", "x.clamp(-1e4, 1e4)", "x.flip(1)", "x * self.scale"],
)
def test_what_gives_some_inputs_back_computes(forward: str) -> None:
    init = INIT.format("", "self.scale = nn.Parameter(torch.ones(()))")
    assert task(f"{init}def forward(self, x):\n    return {forward}\n")["row"]


def test_a_module_that_hangs_is_dropped() -> None:
    body = "def forward(self, x):\n    while True:\n        pass\n"
    assert dropped(body, seconds=1.0) == "out_of_time"


def test_a_file_that_fails_on_import_is_dropped() -> None:
    assert dropped("def forward(self, x):\n    return x\n", "raise OSError('no')") == "import_error"


def test_keyword_only_arguments_become_positional_in_a_legal_order() -> None:
    text = "class Model:\n    def __init__(self, a, *, b=1, c: int, **rest):\n        pass\n"
    made = make_positional(text, "Model")
    assert made == (
        "class Model:\n    def __init__(\n        self,\n        a,\n        c: int,\n"
        "        b=1,\n        **rest,\n    ):\n        pass\n"
    )
    illegal = "class Model:\n    def __init__(self, a=0, *, b):\n        pass\n"
    assert make_positional(illegal, "Model") == illegal
