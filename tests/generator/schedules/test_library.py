"""Products and convolutions: judged on the CPU, and read."""

import re

import pytest
import torch
from shared_judge import not_correct

from curate.generator.generate import generate
from curate.problem.problem import load
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

REFERENCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width=24, out=40, kernel=3, stride=2, padding=1, dilation=2):
        super().__init__()
        {layer}

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def reference(body, inputs, layer="self.width = width", names="x"):
    return REFERENCE.format(body=body, inputs=inputs, layer=layer, names=names)


LINEAR = "self.linear = nn.Linear(width, out)"
PRODUCTS = {
    "product": reference("x @ y", "torch.randn(70, 33), torch.randn(33, 50)", names="x, y"),
    "epilogue": reference(
        "torch.relu(self.linear(x)) * 2 + r",
        "torch.randn(3, 20, 24), torch.randn(20, 40)",
        LINEAR,
        "x, r",
    ),
    "batches": reference(
        "F.gelu(q @ k.transpose(-1, -2))",
        "torch.randn(2, 3, 20, 16), torch.randn(2, 3, 18, 16)",
        names="q, k",
    ),
    "with factors": reference(
        "torch.baddbmm(x, a, b, alpha=0.5, beta=2)",
        "torch.randn(4, 36, 25), torch.randn(4, 36, 18), torch.randn(4, 18, 25)",
        names="x, a, b",
    ),
    "one row": reference("self.linear(x)", "torch.randn(24)", LINEAR),
    "few rows": reference("self.linear(x)", "torch.randn(5, 24)", LINEAR),
    "columns of the module": reference(
        "x @ self.w", "torch.randn(40, 48)", "self.w = nn.Parameter(torch.rand(48, 56))"
    ),
    "heads": reference(
        "self.linear(x).view(2, -1, 4, 10).transpose(1, 2).exp()", "torch.randn(2, 17, 24)", LINEAR
    ),
}
CONVOLUTIONS = {
    "window": reference(
        "self.c(x) + x", "torch.randn(2, 20, 9, 11)", "self.c = nn.Conv2d(20, 20, 3, padding=1)"
    ),
    "signal": reference(
        "self.c(x)", "torch.randn(2, 5, 60)", "self.c = nn.Conv1d(5, 16, 7, stride=3, padding=2)"
    ),
    "every second pixel": reference(
        "self.c(x)", "torch.randn(2, 6, 5, 7)", "self.c = nn.ConvTranspose2d(6, 20, 4, 2, 1)"
    ),
    "two strides": reference(
        "torch.relu(self.c(x))",
        "torch.randn(2, 6, 5, 7)",
        "self.c = nn.ConvTranspose2d(6, 20, (3, 1), (1, 3), (1, 0), output_padding=(0, 2))",
    ),
    "transposed volumes": reference(
        "self.c(x)",
        "torch.randn(1, 4, 3, 4, 5)",
        "self.c = nn.ConvTranspose3d(4, 16, 3, stride, padding)",
    ),
    "pixels": reference(
        "torch.relu(self.c(x))", "torch.randn(2, 24, 9, 10)", "self.c = nn.Conv2d(width, out, 1)"
    ),
    "one pixel": reference(
        "torch.sigmoid(self.c(x.mean((2, 3), keepdim=True)))",
        "torch.randn(2, 24, 9, 10)",
        "self.c = nn.Conv2d(width, 6, 1)",
    ),
    "every number": reference(
        "F.gelu(self.c(x))",
        "torch.randn(2, 24, 17, 18)",
        "self.c = nn.Conv2d(width, out, kernel, stride, padding, dilation)",
    ),
    "groups": reference(
        "self.c(x)", "torch.randn(2, 8, 50)", "self.c = nn.Conv1d(8, 40, 4, 3, groups=2)"
    ),
    "volumes": reference(
        "self.c(x)", "torch.randn(2, 8, 6, 7, 8)", "self.c = nn.Conv3d(8, 16, 3, padding=1)"
    ),
    "few channels": reference(
        "self.c(x)",
        "torch.randn(2, 3, 6, 7, 8)",
        "self.c = nn.Conv3d(3, 16, (2, 3, 3), padding=(0, 1, 1), dilation=(2, 2, 1))",
    ),
    "depthwise": reference(
        "F.silu(self.c(x))",
        "torch.randn(2, 24, 9, 10)",
        "self.c = nn.Conv2d(width, width, kernel, padding=1, groups=width)",
    ),
    "depthwise without bias": reference(
        "self.c(x)",
        "torch.randn(2, 24, 9, 10)",
        "self.c = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)",
    ),
    "one channel": reference(
        "self.c(x)", "torch.randn(2, 4, 9, 10)", "self.c = nn.Conv2d(4, 1, 1, bias=False)"
    ),
    "two a group": reference(
        "self.c(x)", "torch.randn(2, 4, 9, 10)", "self.c = nn.Conv2d(4, 8, 3, groups=2)"
    ),
    "transposed": reference(
        "torch.tanh(self.c(x))",
        "torch.randn(2, 6, 17)",
        "self.c = nn.ConvTranspose1d(6, 20, 3, 2, 1, output_padding=1, dilation=2)",
    ),
    "transposed in groups": reference(
        "self.c(x)", "torch.randn(2, 8, 5, 5)", "self.c = nn.ConvTranspose2d(8, 40, 3, 2, groups=2)"
    ),
    "transposed depthwise": reference(
        "self.c(x)", "torch.randn(2, 4, 9)", "self.c = nn.ConvTranspose1d(4, 4, 3, 2, groups=4)"
    ),
}
CASES = PRODUCTS | CONVOLUTIONS


@pytest.fixture(scope="module")
def programs():
    return {name: generate(text).text for name, text in CASES.items()}


def verdicts(programs, judge):
    candidates = [Candidate(name, CASES[name], text) for name, text in programs.items()]
    return {verdict.id: verdict for verdict in judge.run(candidates)}


@pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=pytest.mark.weekly) for i in (1, 2))])
def test_they_are_right_at_other_sizes(programs, warm_judge, part):
    assert not not_correct(verdicts(dict([*programs.items()][part::3]), warm_judge).values())


@pytest.mark.weekly
def test_each_way_of_a_product_is_right(programs, thorough_judge):
    names = ("product", "few rows", "columns of the module")
    found = verdicts({name: programs[name] for name in names}, thorough_judge)
    assert {name: found[name].status for name in names} == dict.fromkeys(names, "correct")
    assert not any("untried_branches" in verdict.caveats for verdict in found.values())


def ways(text):
    return [way for way in ("partial", "combine", "few_rows") if f"_{way}_kernel[grid](" in text]


def test_a_long_product_is_shared_and_few_rows_take_no_tensor_core(programs):
    found = {name: ways(text) for name, text in programs.items() if "tl.dot(" in text}
    assert {name: used for name, used in found.items() if used} == {
        "product": ["partial", "combine", "few_rows"],
        "few rows": ["few_rows"],
        "columns of the module": ["few_rows"],
    }
    long = "self.linear = nn.Linear(5000, 20)"
    text = generate(reference("self.linear(x)", "torch.randn(32, 5000)", long)).text
    assert ways(text) == ["partial", "combine", "few_rows"]
    assert "atomic" not in text


def test_each_is_one_kernel_with_all_that_follows_inside(programs):
    for name in programs.keys() - {"one row", "one pixel", "product", "few rows"}:
        forward = programs[name].partition("def forward(")[2]
        more = "_few_rows_" in forward or "image_kernel[" in forward  # another way; a copy
        assert forward.count("[grid](") == 1 + more, name
        assert not re.search(r"\b(F|torch\.nn\.functional)\.\w+\(|torch\.(matmul|bmm)", forward)
    assert "tl.maximum(" in programs["epilogue"] and "bias" in programs["epilogue"]
    assert "tl.erf(" in programs["every number"]


def test_nothing_is_divided_in_the_loop_over_channels(programs):
    for name in CONVOLUTIONS.keys() - {"pixels", "transposed", "few channels"}:
        kernel = programs[name].partition("class ModelNew")[0]
        loop = re.split("for (?:start|_) in range", kernel)[-1].partition("tl.dot")[0]
        if "tl.dot(" in kernel:
            assert loop.count("tl.load(") == 2, name
            assert not set("/%") & set(loop.partition(":\n")[2]), name


def test_taps_that_lie_together_are_summed_as_one(programs):
    for name, axes in {"signal": 0, "window": 1, "volumes": 2, "every number": 2}.items():
        kernel = programs[name].rpartition("@triton.jit")[2].partition("class ModelNew")[0]
        assert len(re.findall("(?m)^ +tap_. = 0$", kernel)) == axes, name
        assert len(re.findall("(?m)^ +for ", kernel)) == 1, name  # what follows runs ahead


def test_few_channels_are_summed_with_all_taps(programs):
    kernel = programs["few channels"].rpartition("@triton.jit")[2].partition("class ModelNew")[0]
    (loop,) = re.findall("(?m)^ +for .*$", kernel)
    assert loop.strip() == "for start in range(0, 54, BLOCK_K):"
    assert "b = tl.load(weights + start, mask=col_mask & (k < 54)[:, None], other=0.0)" in kernel


def test_no_tap_of_a_padded_image_asks_whether_it_is_inside(programs):
    for name in ("window", "signal", "volumes", "every number"):
        copy, kernel = programs[name].partition("class ")[0].split("@triton.jit")[1:]
        assert "mask=row_mask & (k < " in kernel and "inside" not in kernel, name
        assert "padded_image_kernel(" in copy and "mask=mask & inside" in copy, name
    assert "_image_kernel[" in programs["groups"] and "inside" not in programs["groups"]


def test_an_image_is_copied_in_tiles_of_its_lines(programs):
    """PyTorch's own copy in another order reads or writes its elements one by one."""
    for name in CONVOLUTIONS:
        assert "x.permute(" not in programs[name], name
    copy = programs["window"].split("@triton.jit")[1]
    assert "h = line % padded_height - " in copy and "image = (line // padded_height)" in copy


def test_each_pixel_of_a_transposed_convolution_tries_taps_that_reach_it(programs):
    text = programs["every second pixel"].split("@triton.jit")[2]
    assert "phase_tap_h = (phase_h + 1) % 2" in text
    assert "taps_h = tl.cdiv(4 - phase_tap_h, 2)" in text
    assert "% 2 == 0" not in text and "inside" not in text
    assert "% 2 == 0" in programs["transposed"]  # with a dilation, other taps reach it


def test_tensor_cores_multiply_what_fills_a_tile(programs):
    sums = {"one row", "one pixel", "two a group", "transposed depthwise"}
    sums |= {"depthwise", "depthwise without bias", "one channel"}
    assert {name for name, text in programs.items() if "tl.dot(" not in text} == sums


def test_a_new_batch_size_is_not_tuned_anew(programs):
    assert 'key=["N", "K"]' in programs["epilogue"]
    assert 'key=["N", "K"]' in programs["every number"]
    assert "input_precision=PRECISION" in programs["product"]


def test_a_product_of_16_bits_asks_for_no_precision_and_prunes_no_tiles(warm_judge):
    given = "torch.randn(70, 33).bfloat16(), torch.randn(33, 50).bfloat16()"
    short = reference("x @ y", given, names="x, y")
    text = generate(short).text
    assert "tl.dot(a, b, acc)" in text and "PRECISION" not in text and "fitting" not in text
    (verdict,) = warm_judge.run([Candidate("short", short, text)])
    assert verdict.status == "correct"


CONVOLUTION_AND_PRODUCT = reference(
    "self.linear(torch.relu(self.c(x)).mean((2, 3)))",
    "torch.randn(4, 20, 9, 11)",
    "self.c = nn.Conv2d(20, 32, 3); self.linear = nn.Linear(32, 24)",
)


@pytest.mark.parametrize(
    ("line", "precisions"),
    [
        ("torch.backends.cudnn.allow_tf32 = True", {"TF32", "PRECISION"}),
        ("torch.set_float32_matmul_precision('high')", {"PRECISION", "TF32"}),
        (
            "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
            {"TF32"},
        ),
        ("", {"PRECISION"}),
    ],
)
def test_factors_are_as_exact_as_the_file_asks(line, precisions, warm_judge):
    text = CONVOLUTION_AND_PRODUCT.replace("class Model", f"{line}\n\n\nclass Model", 1)
    program = generate(text).text
    assert set(re.findall(r"input_precision=(\w+)", program)) == precisions
    (verdict,) = warm_judge.run([Candidate("", text, program)])
    assert verdict.status == "correct", verdict


def test_no_device_is_asked_how_it_convolves(programs, monkeypatch):
    def ask(*given, **named):
        raise AssertionError("asked")

    monkeypatch.setattr(torch._C, "_select_conv_backend", ask)
    assert generate(CASES["depthwise"]).text == programs["depthwise"]


def test_tiles_fit_into_shared_memory_in_each_type(programs):
    module = load("program", programs["product"])
    counts = []
    for size, dtype in ((4, torch.float32), (2, torch.bfloat16)):
        arguments = {"x_ptr": torch.empty(1, dtype=dtype), "partial_ptr": torch.empty(1), "M": 1}
        found = module.fitting(module.TILES, arguments, BLOCK=1)
        counts.append(len(found))
        for config in found:
            m, n, k = (config.kwargs[f"BLOCK_{of}"] for of in "MNK")
            assert (config.num_stages - 1) * (m + n) * k * size <= 2**18 // size
    assert 3 <= counts[0] < counts[1] == len(module.TILES)


def test_a_transposed_factor_is_read_where_it_lies():
    text = generate(
        reference("x.t() @ y.t()", "torch.randn(33, 70), torch.randn(50, 33)", names="x, y"),
    ).text
    assert "inner[None, :] * M + a_rows" in text
    assert "b_cols * K + inner[:, None]" in text
    assert "a_ptrs += BLOCK_K * M" in text
