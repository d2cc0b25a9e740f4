import textwrap
from typing import Any

import pytest
import torch

from curate.harvest.modules.inputs import Inputs
from curate.harvest.modules.search import WIDTHS
from curate.harvest.modules.taskfile import make_positional
from curate.problem.draw import Draw, Variation, free_sizes, resized
from curate.problem.problem import LoadedTask
from curate.rows import make_origin, make_row
from curate.step import Context, Drop, Keep, Outcome


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    Inputs(step="inputs").setup(Context())


def apply(body: str, head: str = "", symbol: str = "A", **options: Any) -> Outcome:
    text = f"import torch\nfrom torch import nn\n\n\n{textwrap.dedent(head)}\n\n"
    text += "class Model(nn.Module):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    origin = make_origin("local", path="a.py", symbol=symbol)
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
    return {"row": row, "names": names, "inputs": inputs, "output": model.eval()(*inputs)}


def shapes(found: dict[str, Any]) -> list[tuple[int, ...]]:
    return [tuple(given.shape) for given in found["inputs"]]


def dropped(body: str, head: str = "", **options: Any) -> str:
    outcome = apply(body, head, **options)
    assert isinstance(outcome, Drop), outcome
    return outcome.reason


INIT = "def __init__(self{}):\n    super().__init__()\n    {}\n"


CONVOLUTION = (
    INIT.format("", "self.c = nn.Conv2d(8, 8, 3)")
    + "def forward(self, x):\n    return self.c(x).relu()\n"
)

IMAGE = "batch_size, 64, height, width"


def test_convolution_gets_an_image_of_realistic_size() -> None:
    found = task(
        INIT.format(
            ", in_channels, out_channels", "self.c = nn.Conv2d(in_channels, out_channels, 3)"
        )
        + "def forward(self, x):\n    return self.c(x).relu()\n"
    )
    ((batch, channels, height, width),) = shapes(found)
    assert batch >= 8 and str(channels) in WIDTHS and width > height >= 24


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


def test_sizes_are_constants_that_the_judge_may_vary() -> None:
    found = task(CONVOLUTION)
    text = found["row"]["reference"]
    assert "return [torch.randn(batch_size, 8, height, width)]" in text
    assert found["names"]["height"] == found["inputs"][0].shape[2]
    loaded = LoadedTask(text)
    assert free_sizes(loaded) == ["batch_size", "height", "width"]
    with resized(loaded, Draw(0, changes=(Variation("size", "width", 7),))):
        assert loaded.inputs()[0].shape[3] == 7


def test_names_that_the_file_uses_are_left_alone() -> None:
    found = task(
        """
def forward(self, x):
    batch_size = x.shape[0]
    return (x * height).reshape(batch_size, -1) + self.width
""",
        "height = 3\nnn.Module.width = 2\nnn.Conv2d\n",
        symbol="ImageScale2d",
    )
    drawn = "torch.randn(batch_size, 64, input_height, input_width)"
    assert f"return [{drawn}]" in found["row"]["reference"]
    assert found["names"]["height"] == 3


def test_height_equals_width_only_where_the_module_needs_it() -> None:
    square = CONVOLUTION.replace("return ", "return x.transpose(2, 3) + x if True else ")
    ((_, _, height, width),) = shapes(task(square))
    assert height == width
    ((_, _, height, width),) = shapes(task(CONVOLUTION))
    assert height != width


CROSS = (
    INIT.format("", "self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))")
    + """
def forward(self, x, context):
    scores = self.q(x) @ self.k(context).transpose(1, 2)
    return scores.softmax(-1) @ self.v(context)
"""
)


def test_inputs_have_a_length_in_common_only_where_the_module_needs_it() -> None:
    x, context = shapes(task(CROSS))
    assert x[0] == context[0] and x[1] != context[1]
    assert "context_len" in task(CROSS)["row"]["reference"]
    both = task(CROSS.replace("return ", "return x + context + "))
    assert shapes(both)[0] == shapes(both)[1]
    assert "context_len" not in both["row"]["reference"]


ROTARY = """
def forward(self, x: torch.Tensor) -> torch.Tensor:
    \"\"\"
    Args:
        x (torch.Tensor): input tensor with shape
            ``[b, s, n_h, h_d]``

    Returns:
        torch.Tensor: output tensor with shape ``[b, s]``
    \"\"\"
    place = torch.arange(x.shape[1]).view(1, -1, 1, 1)
    return x * place.cos()
"""


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (ROTARY, "batch_size, seq_len, n_heads, 64"),
        ("def forward(self, x):\n    # x: (B, C, H, W)\n    return x * 2\n", IMAGE),
        ("def forward(self, x):\n    b, c, h, w = x.shape\n    return x * h\n", IMAGE),
        (
            "def forward(self, x):\n    b, n_tiles, t, dim = x.shape\n    return x * n_tiles\n",
            "batch_size, n_tiles, seq_len, 64",
        ),
        ("def forward(self, t):\n    return t[:, None] * torch.ones(1, 8)\n", "batch_size"),
        ("def forward(self, x):\n    return x * 2\n", "batch_size, seq_len, 64"),
    ],
)
def test_documented_shapes_are_used(body: str, shape: str) -> None:
    assert f"return [torch.randn({shape})]" in task(body)["row"]["reference"]


def test_a_length_that_a_parameter_has_stays_a_number() -> None:
    found = task(
        INIT.format("", "self.place = nn.Parameter(torch.randn(65, 32))")
        + """
def forward(self, x):
    \"\"\"Add places.

    Args:
        x: tokens with shape (..., n_tokens, embed_dim)
    \"\"\"
    return x + self.place
"""
    )
    assert "torch.randn(batch_size, 65, 32)" in found["row"]["reference"]


def test_what_holds_what_was_in_memory_is_no_problem() -> None:
    forward = "def forward(self, x):\n    # x: (B, 32)\n    return x * self.scale\n"
    given = INIT.format("", "self.scale = nn.Parameter(torch.empty(32))")
    assert dropped(given + forward) == "uninitialised"
    task(given + "    nn.init.normal_(self.scale)\n" + forward)


def test_what_skips_layers_has_twice_the_size_if_that_fits() -> None:
    body = INIT.format("", "self.c = nn.Conv2d(8, 8, 1)") + "def forward(self, x, skip):\n    "
    larger = task(body + "return nn.functional.interpolate(x, scale_factor=2.0) + self.c(skip)\n")
    x, skip = shapes(larger)
    assert skip[2:] == (2 * x[2], 2 * x[3]) and x[2] != x[3]
    x, skip = shapes(task(body + "return x + self.c(skip)\n"))
    assert x == skip


def test_embedding_of_numbers_gets_one_number_per_sample() -> None:
    body = "def forward(self, x):\n    return (x.unsqueeze(1) * torch.ones(1, 4)).sin()\n"
    assert len(shapes(task(body, symbol="FourierEmbedding"))[0]) == 1


def test_losses_get_probabilities_and_labels() -> None:
    body = "def forward(self, y_pr, y_gt):\n    return 1 - (y_pr * y_gt).sum() / y_pr.numel()\n"
    prediction, truth = task(body, symbol="SoftLoss")["inputs"]
    assert prediction.shape == truth.shape
    assert float(prediction.min()) >= 0 and float(prediction.max()) < 1
    assert truth.unique().tolist() == [0, 1]


def test_cross_entropy_gets_classes() -> None:
    body = (
        "def forward(self, logits, labels):\n    return nn.functional.cross_entropy(logits, labels)"
    )
    logits, labels = task(body + "\n", symbol="SomeLoss")["inputs"]
    assert float(logits.min()) < 0
    assert not labels.is_floating_point()
    assert labels.unique().tolist() == list(range(logits.shape[1]))


def test_log_probabilities_are_negative() -> None:
    body = "def forward(self, chosen_logps, other_logps):\n    return chosen_logps - other_logps\n"
    found = task(body, symbol="PreferenceLoss")
    assert all(len(shape) == 1 for shape in shapes(found))
    assert all(float(given.max()) < 0 for given in found["inputs"])


ROTARY = """
def rotated(x, position_embeddings):
    cos, sin = position_embeddings
    a, b = x.chunk(2, -1)
    return x * cos.unsqueeze(1) + torch.cat([-b, a], -1) * sin.unsqueeze(1)
"""
ATTENTION = (
    INIT.format("", "self.head_dim = 24\n    self.qkv = nn.Linear(48, 144)")
    + """
def forward(self, x, {}):
    q, k, v = self.qkv(x).view(*x.shape[:2], 6, 24).transpose(1, 2).chunk(3, 1)
    {}
    return torch.softmax(scores, -1) @ v
"""
)


@pytest.mark.parametrize("before", ["", "past: torch.Tensor | None = None, "])
def test_a_rotary_embedding_is_cosines_and_sines(before: str) -> None:
    default = " = None" if before else ""
    given = f"{before}position_embeddings: tuple[torch.Tensor, torch.Tensor]{default}"
    scores = "scores = rotated(q, position_embeddings) @ k.mT"
    x, *past, (cos, sin) = task(ATTENTION.format(given, scores), ROTARY)["inputs"]
    assert past == [None] * bool(before)
    assert cos.shape == sin.shape == (*x.shape[:2], 24)
    assert cos.abs().max() <= 1 and not torch.equal(cos, sin)


def test_a_mask_that_is_added_to_scores_is_causal() -> None:
    found = task(ATTENTION.format("attention_mask", "scores = q @ k.mT + attention_mask"))
    x, mask = found["inputs"]
    assert mask.shape == (x.shape[1], x.shape[1])
    assert mask[0].isinf().sum() == len(mask) - 1 and (mask[-1] == 0).all()


def test_modules_have_different_widths() -> None:
    body = INIT.format(", dim", "self.l = nn.Linear(dim, {})")
    forward = "def forward(self, x):\n    return self.l(x)\n"
    widths = {shapes(task(body.format(n) + forward))[0][-1] for n in range(10, 18)}
    assert 1 < len(widths) <= len(WIDTHS)


def test_lists_of_tensors_are_not_guessed() -> None:
    body = "def forward(self, features: list[torch.Tensor]):\n    return features[0] * 2\n"
    assert dropped(body) == "no_inputs_found"


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


def test_no_functions_are_given_for_layers_since_no_judge_can_send_them() -> None:
    head = """
    from inspect import isfunction
    from typing import Callable

    def make(norm, **k):
        {check}
        return norm(**k)
    """
    body = (
        INIT.format(
            ", channels: int, normalization: Callable[..., nn.Module]",
            "self.n = make(normalization, num_features=channels)",
        )
        + "def forward(self, x):\n    return self.n(x) + x\n"
    )
    assert task(body, head.format(check="assert not isfunction(norm)"))
    assert dropped(body, head.format(check="assert isfunction(norm)")) == "constructor_unknown"


def test_a_configuration_is_what_the_module_reads_of_it() -> None:
    found = task(
        """
        def __init__(self, config):
            super().__init__()
            self.config = config
            self.up = nn.Linear(config.hidden_size, config.mlp.intermediate_size)
            self.down = nn.Linear(config.mlp.intermediate_size, config.hidden_size)
            self.gated = getattr(config, "gated", False)
            self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

        def forward(self, hidden_states):
            y = self.down(torch.relu(self.up(hidden_states)))
            return self.norm(y) if self.config.use_norm else y
        """.replace("config.mlp", "config.mlp_config")
    )
    (config,) = found["names"]["get_init_inputs"]()
    (mlp,) = [value for value in vars(config).values() if hasattr(value, "intermediate_size")]
    assert str(config.hidden_size) in WIDTHS
    assert vars(config) == {
        "hidden_size": config.hidden_size,
        "mlp_config": mlp,
        "layer_norm_eps": 1e-05,
        "use_norm": False,
    }
    assert mlp.intermediate_size == 256
    assert found["row"]["reference"].startswith("from types import SimpleNamespace\nimport torch")


def test_a_configuration_that_is_looked_up_is_a_dictionary() -> None:
    found = task(
        INIT.format(", config", "self.l = nn.Linear(config['hidden_size'], config['n_heads'])")
        + "def forward(self, x):\n    return self.l(x)\n"
    )
    (config,) = found["names"]["get_init_inputs"]()
    assert str(config.pop("hidden_size")) in WIDTHS and config == {"n_heads": 4}


def test_same_module_gives_the_same_bytes() -> None:
    body = "def forward(self, x, y):\n    return x * y\n"
    assert task(body)["row"] == task(body)["row"]


@pytest.mark.parametrize(
    ("reason", "init", "forward"),
    [
        ("needs_config", INIT.format(", config", "self.n = config.zzz"), "return x * self.n"),
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
