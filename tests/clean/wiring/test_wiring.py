from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from curate.clean.wiring.wiring import Wiring, read_wiring  # noqa: E402
from curate.engine.executor import Job  # noqa: E402
from curate.engine.processes.local import LocalExecutor  # noqa: E402
from curate.rows import make_origin, make_row  # noqa: E402
from curate.step import Context  # noqa: E402

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def problem(init: str, forward: str, inputs: str = "torch.rand(4, 8)") -> str:
    """Return a problem in KernelBench's form."""
    lines = ["class Model(nn.Module):\n    def __init__(self):\n        super().__init__()"]
    lines += [f"        {line}" for line in init.splitlines()]
    lines += ["\n    def forward(self, *given):"]
    lines += [f"        {line}" for line in forward.splitlines()]
    ends = ["", "", "def get_inputs():", f"    return [{inputs}]", "", ""]
    ends += ["def get_init_inputs():", "    return []", ""]
    return HEAD + "\n".join([*lines, *ends])


def known(reference: str) -> dict[str, Any]:
    found = read_wiring(reference)
    assert found is not None
    return found


GATED = problem(
    "self.up = nn.Linear(8, 6)\nself.gate = nn.Linear(8, 6)",
    "x = given[0]\ny = F.silu(self.gate(x))\ny = y * self.up(x)\nreturn torch.softmax(y, dim=-1)",
)
IN_OTHER_WORDS = {
    "fresh variables and one expression": problem(
        "self.a = nn.Linear(8, 6)\nself.b = nn.Linear(8, 6)",
        "(rows,) = given\nreturn F.softmax(self.a(rows) * F.silu(self.b(rows)), -1)",
    ),
    "functions on parameters": problem(
        "self.w = nn.Parameter(torch.rand(6, 8))\nself.v = nn.Parameter(torch.rand(6, 8))\n"
        "self.c = nn.Parameter(torch.rand(6))\nself.d = nn.Parameter(torch.rand(6))",
        "h = given[0]\ng = h @ self.w.t() + self.c\nu = torch.mm(h, self.v.T).add(self.d)\n"
        "g = g * torch.sigmoid(g)\nreturn (u * g).softmax(1)",
    ),
    "modules in a list, in place": problem(
        "self.parts = nn.ModuleList([nn.Linear(8, 6), nn.Linear(8, 6)])\nself.last = nn.Softmax(1)",
        "g, u = (part(given[0]) for part in self.parts)\ng = nn.SiLU(inplace=True)(g)\n"
        "g *= u\nreturn self.last(g)",
    ),
    "copies, casts and shapes that are there already": problem(
        "self.a = nn.Linear(8, 6)\nself.b = nn.Linear(8, 6)\nself.drop = nn.Dropout(0.3)",
        "x = given[0].reshape(4, 8).contiguous().float()\n"
        "y = F.silu(self.drop(self.a(x))).clone()\nunused = x.exp()\n"
        "return F.softmax(self.b(x).view(-1, 6) * y, 1)",
    ),
    "other sizes": problem(
        "self.up = nn.Linear(16, 10)\nself.gate = nn.Linear(16, 10)",
        "x = given[0]\nreturn torch.softmax(F.silu(self.gate(x)) * self.up(x), dim=-1)",
        "torch.rand(64, 16)",
    ),
}
OTHERS = {
    "another activation": GATED.replace("F.silu", "torch.tanh"),
    "the gate is its own": GATED.replace("self.up(x)", "self.gate(x)"),
    "one layer more": GATED.replace("y * self.up(x)", "y * self.up(torch.relu(x))"),
    "a sum": GATED.replace("y * self.up(x)", "y + self.up(x)"),
}


@pytest.mark.parametrize("words", IN_OTHER_WORDS)
def test_one_graph_in_other_words_has_one_hash(words: str) -> None:
    assert known(IN_OTHER_WORDS[words])["graph"] == known(GATED)["graph"]


@pytest.mark.parametrize("other", OTHERS)
def test_another_graph_has_another_hash(other: str) -> None:
    assert known(OTHERS[other])["graph"] != known(GATED)["graph"]


def test_a_larger_module_has_all_the_neighbourhoods() -> None:
    larger = problem(
        "self.up = nn.Linear(8, 6)\nself.gate = nn.Linear(8, 6)\nself.first = nn.Linear(8, 8)",
        "x = torch.relu(self.first(given[0]))\nz = F.silu(self.gate(x)) * self.up(x)\n"
        "z = torch.softmax(z, dim=-1)\nreturn z * 2 + z.cos()",
    )
    hops = set(known(GATED)["hops"])
    assert hops <= set(known(larger)["hops"])
    assert not hops <= set(known(OTHERS["a sum"])["hops"])


NORM = "x = given[0]\nreturn x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (NORM, NORM.replace("1e-5", "1e-3"), False),
        (NORM, NORM.replace("x.pow(2)", "(x * x)"), True),
        ("return given[0].softmax(0)", "return given[0].softmax(1)", False),
        ("return given[0].t() @ given[0]", "return given[0] @ given[0].t()", False),
        ("return given[0][:, :4] * 1", "return given[0][:, 4:] * 1", False),
        ("return given[0].half() * 2", "return given[0] * 2", False),
        ("return given[0].view(2, 16).sum(1)", "return given[0].view(8, 4).sum(1)", False),
        ("return given[0] / 4", "return given[0].mul(0.25)", True),
    ],
)
def test_the_exact_hash_keeps_numbers_dimensions_and_types(
    one: str, other: str, same: bool
) -> None:
    left, right = known(problem("", one)), known(problem("", other))
    assert (left["exact"] == right["exact"]) is same


def test_the_exact_hash_keeps_the_values_of_tables() -> None:
    def table(base: int) -> str:
        code = f'self.register_buffer("table", {base} ** torch.arange(8.0))'
        return problem(code, "return given[0] * self.table")

    assert known(table(2))["exact"] == known(table(2))["exact"]
    assert known(table(2))["exact"] != known(table(3))["exact"]
    assert known(table(2))["graph"] == known(table(3))["graph"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("return torch.relu(given[0])", "return given[0].clamp(min=0)"),
        ("return F.elu(given[0])", "return F.celu(given[0])"),
        ("return torch.softmax(given[0], 1)", "x = given[0].exp()\nreturn x / x.sum(-1)[:, None]"),
        ("return F.gelu(given[0])", "x = given[0]\nreturn x * (1 + torch.erf(x / 2 ** 0.5)) / 2"),
        ("return F.hardtanh(given[0])", "return given[0].clip(-1, 1).float()"),
    ],
)
def test_the_same_values_in_other_operators_share_a_hash(one: str, other: str) -> None:
    left, right = (known(problem("", code))["values"] for code in (one, other))
    assert set(left) & set(right)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("return torch.relu(given[0])", "return F.leaky_relu(given[0])"),
        ("return torch.exp(given[0])", "return torch.expm1(given[0])"),
        ("return given[0].sum(1)", "return given[0].mean(1)"),
        ("return F.relu6(given[0])", "return F.relu(given[0])"),
        ("return given[0].t()", "return given[0].flip(0)"),
    ],
)
def test_other_values_share_no_hash(one: str, other: str) -> None:
    left, right = (known(problem("", code))["values"] for code in (one, other))
    assert not set(left) & set(right)


def test_classes_and_numbers_are_drawn_too() -> None:
    loss = problem(
        "", "return F.cross_entropy(*given)", "torch.rand(4, 8), torch.randint(0, 8, (4,))"
    )
    written = problem(
        "",
        "x, at = given\nx = torch.log_softmax(x, 1)\nreturn -x[torch.arange(len(at)), at].mean()",
        "torch.rand(9, 5), torch.randint(0, 5, (9,))",
    )
    assert set(known(loss)["values"]) & set(known(written)["values"])
    scaled = problem("", "return given[0] * given[1]", "torch.rand(4, 8), 3.0")
    assert known(scaled)["values"]


def test_recurrent_layers_and_modules_that_ask_for_values_are_traced() -> None:
    inputs = "torch.rand(900, 3, 8)"
    layer = problem("self.r = nn.GRU(8, 5, 2)", "return self.r(given[0])[0]", inputs)
    assert known(layer)["ops"] == 1
    asks = problem("self.n = int(torch.linspace(0, 3, 4)[2].item())", "return given[0] ** self.n")
    assert known(asks)["graph"] == known(problem("", "return given[0] * given[0]"))["graph"]


def test_what_cannot_be_traced_is_kept_without() -> None:
    step = Wiring(step="wiring")
    codes = [GATED, "raise OSError\n", problem("", "return given[7]"), "x = (", None]
    rows = [make_row("task", str(c), make_origin("local"), reference=c) for c in codes]
    jobs = iter([Job("", number, [row]) for number, row in enumerate(rows)])
    found = {}
    for job, _, result in LocalExecutor(1).run(step, Context(), jobs):
        assert not result.lost
        found[job.start] = result.kept[0]["wiring"]
    assert [found[number] is not None for number in range(5)] == [True, *[False] * 4]
    assert found[0] == known(GATED)


@pytest.mark.parametrize(
    "way",
    [
        "return torch.zeros_like(given[0]).copy_({}(given[0]))",
        "y = torch.zeros(4, 9)\ny[:, 1:] = {}(given[0])\nreturn y",
    ],
)
def test_what_is_copied_into_a_tensor_is_what_it_holds(way: str) -> None:
    sine, cosine = (known(problem("pass", way.format(f"torch.{op}"))) for op in ("sin", "cos"))
    assert sine["graph"] != cosine["graph"] and sine["exact"] != cosine["exact"]


def test_an_input_copied_into_a_tensor_is_the_input() -> None:
    copied, given = (
        known(problem("pass", f"return {what}"))
        for what in ("torch.diff(given[0], n=0)", "given[0]")
    )
    assert copied["graph"] == given["graph"] and copied["exact"] == given["exact"]
