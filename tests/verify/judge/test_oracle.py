"""What is right, as a reference's process says, in a sandbox of its own."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

import curate
from curate.engine.processes import sandbox
from curate.problem.draw import FAMILIES, OWN, Draw, Variation
from curate.verify.host import HostOptions
from curate.verify.judge.oracle import Expected, NoOracle, Oracle, Variety, easier
from curate.verify.judge.session import Host, HostError, SessionEnded
from curate.verify.protocol.compare import Mismatch
from curate.verify.protocol.messages import Drawn, Results
from curate.verify.reference.serve import MORE, USUAL
from curate.verify.verdict import Options

REFERENCE = """
import os
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}

rows = 4

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def reference(
    forward: str,
    inputs: str = "torch.rand(rows, 8)",
    init: str = "self.scale = 1",
    arguments: str = "x",
) -> str:
    return REFERENCE.format(forward=forward, inputs=inputs, init=init, arguments=arguments)


Ask = Callable[..., Oracle]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Return an oracle for a reference; they are closed one after the other."""
    opened: list[Oracle] = []
    with closing(Host(HostOptions("reference", 1024, True))) as host:

        def load(*args: Any, **kwargs: Any) -> Oracle:
            for oracle in opened:
                oracle.close()
            oracle = Oracle(host, reference(*args, **kwargs), "cpu", Options(timeout_s=20.0))
            opened.append(oracle)
            oracle.load()
            return oracle

        yield load
        for oracle in opened:
            oracle.close()


# --- draws ----------------------------------------------------------------------------------


def test_draws_get_easier_step_by_step() -> None:
    changes = (Variation("dimension", 0, 7, 8),)
    steps = [Draw(5, 2, "large", size=3, changes=changes)]
    while steps[-1] != (following := easier(steps[-1])):
        steps.append(following)
    assert steps == [
        Draw(5, 2, "large", size=3, changes=changes),
        Draw(5, 2, "own", size=3, changes=changes),
        Draw(5, 2, "own", size=3),
        Draw(5, 2, "own"),
    ]


def test_a_draw_that_is_taken_is_the_one_that_was_asked_for(ask: Ask) -> None:
    oracle = ask("return x + 1")
    assert oracle.own_size == 4
    for family in FAMILIES:
        draw = Draw(oracle.seed, family=family, size=3)
        expected = oracle.expect(draw)
        assert expected.draw == draw
        (x,) = expected.drawn.inputs
        assert x.shape == (3, 8)
        assert torch.equal(expected.drawn.own["output"], x + 1)
        assert torch.equal(expected.drawn.exact["output"], x.double() + 1)


@pytest.mark.parametrize(
    ("forward", "asked", "taken"),
    [
        ("return x.log()", Draw(1, family="negative"), Draw(1)),
        ("return x.exp()", Draw(1, family="large"), Draw(1, family="large")),
        ("return x.exp().sum()", Draw(1, family="large", size=3), Draw(1, size=3)),
        ("return x.topk(2)", Draw(1, family="steps"), Draw(1)),
        ("return x.topk(2)", Draw(1, family="signed"), Draw(1, family="signed")),
        ("return x.argmax(1)", Draw(1, family="steps"), Draw(1, family="steps")),
        ("return x > 1", Draw(1, family="steps"), Draw(1, family="steps")),
        ("return x.reshape(2, 16)", Draw(1, size=3), Draw(1)),
        (
            "return x.reshape(2, 16)",
            Draw(1, family="small", size=3, changes=(Variation("dimension", 0, 7, 8),)),
            Draw(1),
        ),
    ],
    ids=str,
)
def test_a_reference_that_does_not_take_a_draw_gets_an_easier_one(
    ask: Ask, forward: str, asked: Draw, taken: Draw
) -> None:
    assert ask(forward).expect(asked).draw == taken


def test_what_overflows_is_compared_on_the_files_own_inputs_only(ask: Ask) -> None:
    for family, may_differ in ((OWN, False), ("large", True)):
        expected = ask("return (88 * x).exp()", "torch.randn(64, 8)").expect(Draw(1, family=family))
        results = copy.deepcopy(expected.drawn.own)
        infinite = results["output"].isinf()
        assert infinite.any() and not infinite.all()
        results["output"][infinite] = 1.0
        if may_differ:
            expected.compare(results)
            results["output"][~infinite] = float("nan")
        with pytest.raises(Mismatch):
            expected.compare(results)


def test_half_precision_on_the_way_shows_on_large_inputs(ask: Ask) -> None:
    for family, is_right in ((OWN, True), ("large", False)):
        expected = ask("return x.ceil()", "torch.randn(64, 8)").expect(Draw(1, family=family))
        results = copy.copy(expected.drawn.own)
        results["output"] = results["output"].half().float()
        if is_right:
            expected.compare(results)
            continue
        with pytest.raises(Mismatch):
            expected.compare(results)


def test_a_draw_is_the_same_in_every_process_and_kept(ask: Ask) -> None:
    linear = "self.linear = nn.Linear(8, 3)"
    one = ask("return self.linear(x)", init=linear)
    draw = Draw(one.seed, one.seed, "signed")
    first = one.expect(draw)
    assert one.expect(draw) is first
    second = ask("return self.linear(x)", init=linear).expect(draw)
    assert first.drawn.names == second.drawn.names
    assert all(map(torch.equal, first.drawn.tensors, second.drawn.tensors))
    assert one.seed != ask("return x").seed


def test_mutated_inputs_are_part_of_the_result(ask: Ask) -> None:
    oracle = ask("return x.mul_(2)")
    expected = oracle.expect(Draw(0))
    own, (x,) = expected.drawn.own, expected.drawn.inputs
    assert list(own["changed"]) == ["input[0]"]
    assert torch.equal(own["changed"]["input[0]"], 2 * x)
    with pytest.raises(Mismatch):
        expected.compare({"output": 2 * x, "changed": {}})


def test_initial_state_is_as_the_constructor_makes_it(ask: Ask) -> None:
    oracle = ask("return self.norm(x)", init="self.norm = nn.LayerNorm(8)")
    state = oracle.initial_state(Draw(0))
    assert list(state) == ["norm.weight", "norm.bias"]
    assert torch.equal(state["norm.weight"], torch.ones(8)) and not state["norm.bias"].any()
    assert all(bool(t.any()) for t in oracle.expect(Draw(0)).drawn.state)


# --- facts ----------------------------------------------------------------------------------


def test_facts_name_operators_modes_and_inputs_without_effect(ask: Ask) -> None:
    oracle = ask("return (x @ x.t()).relu()")
    facts = oracle.facts("eval")
    assert facts.calls == {"mm": 1, "relu": 1}
    assert facts.call_bytes == 4 * (32 + 32 + 16 + 16 + 16)
    assert (facts.mode_dependent, facts.insensitive_inputs) == (False, [])
    two = {"inputs": "torch.rand(rows, 8), torch.rand(3), 2", "arguments": "x, y, n"}
    assert ask("return x + 0 * y.sum() + n", **two).facts("eval").insensitive_inputs == [1]
    dropout = ask("return self.drop(x)", init="self.drop = nn.Dropout()")
    assert dropout.facts("eval").mode_dependent
    with pytest.raises(NoOracle) as caught:
        dropout.facts("train")
    assert (caught.value.status, caught.value.reason) == ("unsupported", "random")


# --- what cannot be said --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "reason", "said"),
    [
        ("return x.nothing()", "reference_error", "nothing"),
        ("return x, {1}", "not_data", "a set is not data"),
        ("os._exit(3)", "reference_error", "crash"),
        ("os.abort()", "reference_error", "SIGABRT"),
        ("return [bytearray(1 << 28) for _ in range(100)]", "reference_error", "MemoryError"),
    ],
)
def test_a_reference_that_fails_has_no_oracle(
    ask: Ask, forward: str, reason: str, said: str
) -> None:
    oracle = ask(forward)
    for _ in range(2):  # its process may be another one the second time
        with pytest.raises(NoOracle) as caught:
            oracle.expect(Draw(0))
        assert (caught.value.status, caught.value.reason) == ("unsupported", reason)
        assert said in str(caught.value.evidence)


def test_a_reference_that_hangs_has_no_oracle(ask: Ask) -> None:
    oracle = ask("while True: pass")
    oracle.seconds = 0.5
    with pytest.raises(NoOracle) as caught:
        oracle.expect(Draw(0))
    assert caught.value.evidence["ended"] == "timeout: timeout"


def test_a_reference_that_died_is_loaded_again(ask: Ask) -> None:
    oracle = ask("return os._exit(1) if len(x) == 3 else x + 1")
    with pytest.raises(NoOracle):
        oracle.expect(Draw(0, size=3))
    assert oracle.expect(Draw(1)).drawn.own["output"].shape == (4, 8)


# --- noise ----------------------------------------------------------------------------------


def passes(expected: Expected, error: float) -> bool:
    results = copy.copy(expected.drawn.own)
    results["output"] = results["output"] + error
    try:
        expected.compare(results)
    except Mismatch:
        return False
    return True


def test_an_ill_conditioned_reference_is_allowed_more_error(ask: Ask) -> None:
    # Multiples of a half are added without error, so the reference's own error shows nothing.
    draw = Draw(0, family="steps")
    noise = []
    for text, allowed in (("return x - 1", False), ("return (x + 4095) - 4096", True)):
        expected = ask(text).expect(draw)
        own, exact = expected.drawn.own["output"], expected.drawn.exact["output"]
        assert torch.equal(own.double(), exact), "no error of its own"
        noise.append(float(expected.ask_noise(draw, USUAL)["output"].max()))
        assert passes(expected, 1e-4) == allowed and not passes(expected, 0.1)
    assert noise[0] < 2e-6 < 1e-4 < noise[1] < 2e-3


def test_noise_of_integers_is_none_and_of_a_chaotic_sum_is_finite(ask: Ask) -> None:
    oracle = ask("return x.argmax(1), x.exp().cumsum(1)")
    noise = oracle.expect(Draw(0)).ask_noise(Draw(0), USUAL)
    indices, sums = noise["output"]
    assert not indices.any() and sums.isfinite().all() and sums.dtype == torch.float32


def test_what_is_picked_is_not_rounded(ask: Ask) -> None:
    """A router keeps all that are not below the best: none may be, and NaN is no noise."""
    forward = "s = torch.sigmoid(x); best = s.topk(1).values; r = torch.where(s >= best, s, 0.0)"
    oracle = ask(forward + "; return r / r.sum(1, keepdim=True)", "torch.randn(rows, 8)")
    expected = oracle.expect(Draw(0))
    x = expected.drawn.inputs[0].clone()
    noise = expected.ask_noise(Draw(0), USUAL)["output"]
    assert noise.isfinite().all() and float(noise.max()) < 1e-6, x


def test_a_reference_of_one_precision_has_no_noise(ask: Ask) -> None:
    ones = "torch.full((8, 8), 0x3F800000, dtype=torch.int32).view(torch.float32)"
    expected = ask(f"return x @ {ones}").expect(Draw(0))
    own, exact = expected.drawn.own["output"], expected.drawn.exact["output"]
    assert expected.ask_noise(expected.draw, USUAL) is None and torch.equal(own, exact)
    assert own.dtype == torch.float32


@pytest.mark.parametrize("kind", ["", ", dtype=torch.float32"], ids=["no type", "float32"])
def test_what_a_file_makes_is_exact_in_float64(ask: Ask, kind: str) -> None:
    expected = ask(f"return x.float() + (torch.arange(8{kind}) / 7).sin()").expect(Draw(0))
    exact = expected.drawn.exact["output"]
    angles = torch.arange(8, dtype=torch.float64) / 7
    assert torch.equal(exact, expected.drawn.inputs[0].double() + angles.sin())


# --- 16 bits --------------------------------------------------------------------------------

MLP = {
    "forward": "return torch.tanh(x @ self.a) @ self.b",
    "inputs": "torch.randn(rows, 64, dtype=torch.bfloat16)",
    "init": "self.a = nn.Parameter(torch.randn(64, 96))"
    "; self.b = nn.Parameter(torch.randn(96, 80)); self.to(torch.bfloat16)",
}


def two_layers(expected: Expected, rounded: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return the output of `MLP` with results on the way rounded, and sums in float32."""
    (x,) = expected.drawn.inputs
    a, b = (t.float() for t in expected.drawn.state)
    hidden = rounded(torch.tanh(rounded(x.float() @ a)))
    return hidden @ b


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", [OWN, "signed", "large", "shifted", "small"])
def test_a_program_in_16_bits_may_round_on_the_way_or_not(ask: Ask, seed: int, family: str) -> None:
    expected = ask(**MLP).expect(Draw(seed, seed, family, size=50))
    own = expected.drawn.own
    for rounded in (torch.Tensor.float, lambda t: t.bfloat16().float()):
        output = two_layers(expected, rounded).bfloat16()
        expected.compare({**own, "output": output})


def accumulated(expected: Expected) -> torch.Tensor:
    (x,) = expected.drawn.inputs
    a, b = expected.drawn.state
    hidden = torch.tanh((x.float() @ a.float()).bfloat16().float())
    total = torch.zeros(hidden.shape[0], b.shape[1], dtype=torch.bfloat16)
    for k in range(len(b)):
        total += hidden[:, k, None].bfloat16() * b[k]
    return total


@pytest.mark.parametrize(
    "wrong",
    [
        accumulated,
        lambda e: (two_layers(e, torch.Tensor.float) * 1.01).bfloat16(),
        lambda e: two_layers(e, lambda t: t * (torch.arange(96) > 0)).bfloat16(),
    ],
    ids=["accumulated", "factor", "a term left out"],
)
def test_a_program_in_16_bits_may_not_lose_more(ask: Ask, wrong: Any) -> None:
    expected = ask(**MLP).expect(Draw(1, 1, size=50))
    with pytest.raises(Mismatch, match=r"value|bias"):
        expected.compare({**expected.drawn.own, "output": wrong(expected)})


def test_only_16_bits_have_more_runs_with_noise(ask: Ask) -> None:
    for kind, asked in ((torch.float32, [USUAL]), (torch.bfloat16, [USUAL, MORE])):
        oracle = ask("return x * 2", f"torch.randn(rows, 99, dtype={kind})")
        efforts: list[str] = []
        one = dataclasses.replace(
            oracle.expect(Draw(0)), ask_noise=lambda _, how, asked=efforts: asked.append(how)
        )
        own = one.drawn.own
        wrong = own["output"].clone()
        wrong[1, 7] += 1
        with pytest.raises(Mismatch):
            one.compare({**own, "output": wrong})
        assert efforts == asked


def test_a_type_of_16_bits_that_a_file_names_is_exact_in_float64(ask: Ask) -> None:
    forward = "return (x.float() * 3 + 1).to(torch.bfloat16) @ self.a"
    expected = ask(**{**MLP, "forward": forward}).expect(Draw(0))
    (x,), (a, _) = expected.drawn.inputs, expected.drawn.state
    exact = (x.float() * 3 + 1).double() @ a.double()
    assert torch.equal(expected.drawn.exact["output"], exact)


def test_float8_is_compared_as_what_it_is(ask: Ask) -> None:
    forward = "return (x * 9).to(torch.float8_e4m3fn), x.to(torch.float8_e5m2)"
    expected = ask(forward, "torch.randn(rows, 99)").expect(Draw(0))
    own = expected.drawn.own
    expected.compare(own)
    four, five = own["output"]
    with pytest.raises(Mismatch, match="value"):
        expected.compare({**own, "output": ((four.float() * 1.5).to(four.dtype), five)})


# --- degenerate -----------------------------------------------------------------------------


def draws(*outputs: Any) -> list[Expected]:
    found: list[Results] = [{"output": out, "changed": {}, "state": {}} for out in outputs]
    return [Expected(Draw(i), Drawn([], [], [], [], own, own)) for i, own in enumerate(found)]


NAN = float("nan")


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ((torch.arange(3.0), torch.arange(3.0, 6.0)), None),
        ((torch.ones(3),), None),
        ((torch.tensor([1.0, NAN]), torch.tensor([2.0, NAN])), None),
        ((torch.tensor([1]), torch.tensor([2])), None),
        (((torch.ones(3), torch.zeros(0)), (torch.zeros(3), torch.zeros(0))), None),
        ((torch.ones(3), torch.ones(3)), "constant_output"),
        ((torch.ones(3), torch.ones(3), torch.zeros(3)), None),
        ((torch.tensor([NAN, 1.0]), torch.tensor([NAN, 1.0])), "constant_output"),
        ((torch.tensor([1]), torch.tensor([1])), "constant_output"),
        ((torch.zeros(0), torch.zeros(0)), "empty_output"),
        ((3, 4), "empty_output"),
        ((torch.tensor([NAN]), torch.tensor([float("inf")])), "nothing_finite"),
    ],
    ids=str,
)
def test_draws_that_prove_nothing(outputs: tuple[Any, ...], reason: str | None) -> None:
    variety = Variety()
    for expected in draws(*outputs):
        variety.add(expected)
    assert variety.draws == len(outputs)
    assert variety.problem() == reason


def test_an_output_varies_if_two_of_its_numbers_differ() -> None:
    cases = [
        torch.rand(9),
        torch.ones(9),
        torch.rand(1),
        torch.zeros(0),
        [torch.ones(2), torch.rand(2)],
    ]
    assert [one.varies for one in draws(*cases)] == [True, False, False, False, True]


# --- the host -------------------------------------------------------------------------------


def test_a_host_that_would_run_other_code_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(curate.__file__).absolute().parent
    shutil.copytree(package, tmp_path / "curate", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sandbox, "PACKAGE", tmp_path / "curate")
    with (
        closing(Host(HostOptions("reference", 1024, True))) as host,
        pytest.raises(HostError) as caught,
    ):
        host.start()
    assert f"and not that in {package}" in str(caught.value)


@pytest.mark.parametrize(("device", "tries"), [("cuda", 2), ("cpu", 1)])
def test_a_context_that_broke_behind_an_answer_is_made_anew(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, device: str, tries: int
) -> None:
    """A stand-in for a device, whose process ends of an assertion that came to light too late."""
    oracle, told = ask("return x"), []
    oracle.device = device

    def ended(*_: Any, **__: Any) -> None:
        told.append(device)
        raise SessionEnded("crash", "crash", printed="CUDA error: device-side assert triggered")

    monkeypatch.setattr(oracle, "_ask_once", ended)
    with pytest.raises(NoOracle, match="unsupported"):
        oracle.facts("eval")
    assert len(told) == tries
