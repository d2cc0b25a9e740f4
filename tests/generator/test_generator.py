"""Programs printed from loops: judged on the CPU, in each branch, and read."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from shared_judge import not_correct

from curate.generator.generate import generate
from curate.generator.unprintable import Unprintable
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

REFERENCE = """
import torch
from torch.nn import functional as F


class Model(torch.nn.Module):
    def __init__(self, width=24, scale=0.5, offset=1):
        super().__init__()
        self.scale = scale
        self.offset = offset
        self.weight = torch.nn.Parameter(torch.rand(width))
        self.bias = torch.nn.Parameter(torch.rand(width))

    def forward(self, {arguments}):
        {body}


batch = 6
width = 24


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [width]
"""

LOWERS_ORDER = torch.__version__ >= "2.12"
needs_order = pytest.mark.skipif(
    not LOWERS_ORDER, reason="PyTorch 2.11 sorts, and finds the place of a maximum, in other ways"
)

ROWS = "torch.randn(batch, width)"
PLANES = "torch.randn(batch, width, 7, 9)"


def reference(body, inputs=ROWS, arguments="x"):
    return REFERENCE.format(body=body, inputs=inputs, arguments=arguments)


@functools.cache
def printed(body, *given, **named):
    return generate(reference(body, *given, **named))


CASES = {
    "flat": ("return torch.relu(x * self.scale + self.offset)", ROWS),
    "broadcast": ("return x * self.weight + self.bias", ROWS),
    "image": ("return torch.sigmoid(x) * self.weight[:, None, None]", PLANES),
    "transpose": ("return x.transpose(1, 3).contiguous() + 1", PLANES),
    "concatenation": ("return torch.cat([x.sin(), x[:, :5], F.pad(x, (2, 0))], 1)", ROWS),
    "gather": ("return x[:, torch.arange(5, device=x.device) * 2] + 1", ROWS),
    "reflected": ("return F.pad(x, (2, 3), mode='reflect').cos()", ROWS),
    "integers": ("return (x.long() // 3) % 5, x.long().remainder(-3)", ROWS),
    "row sum": ("return x.sum(1), (x > 0).any(1), x.prod(1)", ROWS),
    "softmax": ("return torch.softmax(x, -1)", ROWS),
    "layer norm": ("return F.layer_norm(x, (x.shape[1],), self.weight, self.bias)", ROWS),
    "extremes": ("return x.amax(1), x.amin(1), x.argmax(1), x.max(1)", ROWS),
    "columns": ("return x.mean(0), x.var(0), x.argmin(0)", ROWS),
    "softmax of columns": ("return torch.log_softmax(x, 0)", ROWS),
    "channel softmax": ("return torch.softmax(x, 1)", PLANES),
    "batch statistics": (
        "m = x.mean((0, 2, 3), keepdim=True)\n"
        "        v = x.var((0, 2, 3), keepdim=True)\n"
        "        return (x - m) * torch.rsqrt(v + self.scale)",
        PLANES,
    ),
    "normalised over channels": (
        "x = x * self.weight[:, None, None] + self.bias[:, None, None]\n"
        "        return x / (x.std(1, keepdim=True) + self.scale)",
        PLANES,
    ),
    "upsampled": ("return torch.softmax(F.interpolate(x, scale_factor=2.0), 1)", PLANES),
    "circular": ("return F.pad(x, (2, 3), mode='circular')", ROWS),
    "samples": (
        "return (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True)",
        PLANES,
    ),
    "whole": ("return (x * x).sum(), x.argmax(), x.std()", ROWS),
    "normalised": ("return x / x.norm() + x.exp().mean()", ROWS),
    "outer": (
        "lin = F.linear(y[:, :1], self.weight[:, None])\n"
        "        return torch.einsum('bi,bj->bij', x, y) + lin[:, None]",
        f"{ROWS}, {ROWS}",
        "x, y",
    ),
}


def refuses_one(verdict):
    """Whether all that is narrow is that a size of one, which might be broadcast, is refused."""
    tried = verdict.evidence.get("some_sizes_only", {})
    is_one = all(change["value"] == 1 for change in tried.get("changes", [{"value": 0}]))
    others = {"own_sizes_only", "own_arguments_only", "contiguous_only", "untried_branches"}
    refused = str(tried.get("message")).startswith("AssertionError")
    return is_one and refused and not others & set(verdict.caveats)


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.weekly)])
def test_programs_are_right_in_each_branch(thorough_judge, part):
    texts = {name: printed(*CASES[name]).text for name in [*CASES][part::2]}
    candidates = [Candidate(name, reference(*CASES[name]), text) for name, text in texts.items()]
    verdicts = {verdict.id: verdict for verdict in thorough_judge.run(candidates)}
    assert not not_correct(verdicts.values())
    narrow = {"own_sizes_only", "some_sizes_only", "own_arguments_only", "contiguous_only"}
    narrow.add("untried_branches")
    narrow_ones = {n: v for n, v in verdicts.items() if narrow & set(v.caveats)}
    assert not {n: v.caveats for n, v in narrow_ones.items() if not refuses_one(v)}
    # Two dimensions would have to be long together, or those that have no name in the file.
    few = {name for name, verdict in verdicts.items() if "untried_grids" in verdict.caveats}
    assert few <= {"samples", "image"}


def test_sizes_decide_between_schedules():
    texts = [printed(*case).text for case in CASES.values()]
    assert sum("        else:" in text for text in texts) >= 3
    assert sum("n_splits" in text for text in texts) >= 3


def test_a_flat_kernel_asks_for_no_rank_and_no_size():
    text = printed(*CASES["flat"]).text
    assert "n_elements = x.numel()" in text
    assert ".dim()" not in text
    assert ".shape" in text  # of the result
    assert "self.scale" in text and "self.offset" in text


def test_a_product_that_sums_nothing_is_no_product():
    text = printed(*CASES["outer"]).text
    assert "tl.dot" not in text and "tl.sum" not in text and text.count("@triton.jit") == 1


def test_an_operator_with_a_dimension_fixes_the_rank():
    text = printed("return x.sum((0, 1))").text
    assert "assert x.dim() == 2" in text


def test_inputs_are_told_apart_and_their_shapes_compared():
    text = printed("return x * y", f"{ROWS}, {ROWS}", "x, y").text
    assert "assert y.shape == x.shape" in text
    assert "torch.promote_types(x.dtype, y.dtype)" in text


def test_a_broadcast_is_read_along_a_tile_without_division():
    text = printed(*CASES["broadcast"]).text
    assert "weight = tl.load(weight_ptr + cols, mask=col_mask)" in text
    assert "cols //" not in text and "% width" not in text


def test_an_image_makes_full_tiles():
    text = printed(*CASES["image"]).text
    assert "n_rows = x.shape[:-2].numel()" in text  # not a program for each image, however small
    divided = text.index("= rows % width")
    assert divided < text.index("rows = rows.to(tl.int64)")  # a division of 64 bits is slow


def test_what_lies_together_makes_the_columns():
    for name in ("normalised over channels", "upsampled", "channel softmax"):
        text = printed(*CASES[name]).text
        assert "walks down BLOCK_COLS columns" in text, name
        assert "BLOCK_ROWS rows," not in text, name


def test_rows_that_an_index_picks_are_read_along_memory():
    inputs = f"torch.randint(6, (batch,)), {ROWS}"
    text = printed("return F.layer_norm(y[x], (y.shape[1],))", inputs, "x, y").text
    assert "* width + cols" in text
    assert "walks down" not in text


def test_rows_of_parameters_are_not_split():
    text = reference("return x + (self.bias - self.weight).abs().sum(1)")
    square = re.sub(r"(self.bias = .*rand\(width)", r"\1, width", text)
    assert "n_splits" not in generate(square).text
    assert "n_splits" in printed("return x + (x - self.bias).abs().sum()").text


def test_schedules_do_not_follow_from_the_sizes_in_the_file():
    for name in ("samples", "batch statistics", "columns", "softmax"):
        small = reference(*CASES[name])
        texts = [generate(small.replace("batch = 6", f"batch = {n}")).text for n in (6, 9999)]
        assert texts[0] == texts[1], name
    assert "if batch >= 256:" in printed(*CASES["samples"]).text
    assert "if " not in printed(*CASES["batch statistics"]).text.partition("class ModelNew")[2]


def test_memory_without_values_is_not_read():
    text = printed(*CASES["circular"]).text
    assert text.count("torch.empty") == 1  # the result


def test_masked_lanes_are_filled_where_they_reach_a_result():
    text = printed("return x.exp().sum(1), (x * x).sum(1)").text
    assert "tl.where(col_mask" in text or 'other=float("-inf")' in text
    assert "tl.where" not in printed("return (x * x).sum(1)").text  # 0 * 0 is 0


def test_offsets_have_64_bits():
    for name in ("flat", "broadcast", "softmax", "columns", "whole"):
        kernels = printed(*CASES[name]).text.partition("class ModelNew")[0]
        assert ".to(tl.int64)" in kernels, name


def test_half_precision_needs_no_second_trace():
    made = printed(*CASES["softmax"])
    assert made.any_float
    assert "dtype=x.dtype" in made.text
    assert "assert x.dtype != torch.float64" in made.text
    fixed = printed("return x.clamp(min=torch.finfo(x.dtype).tiny)")
    assert not fixed.any_float
    assert "assert x.dtype == torch.float32" in fixed.text


def test_results_follow_the_types_that_they_depend_on():
    text = printed(
        "return torch.where(y > 0, x, 0.0), y.float().sin(), y.float()", f"{ROWS}, {ROWS}", "x, y"
    ).text
    assert "dtype=x.dtype" in text
    assert "dtype=torch.float32" in text
    assert "y.to(torch.float32)" in text
    assert "dtype=y.dtype" not in text


def test_what_cannot_be_printed_says_why():
    for body, reason in {
        "return torch.linalg.qr(x)[0]": "a library call: torch.ops.aten.linalg_qr.default",
        "return x + torch.rand_like(x)": "random numbers",
        **({"return x.long().sort()": "a sort of torch.int64"} if LOWERS_ORDER else {}),
        "self.bias.add_(1); return x + self.bias": "changes its inputs or buffers",
    }.items():
        with pytest.raises(Unprintable, match=re.escape(reason)):
            printed(body)


def test_a_guard_becomes_an_assertion():
    text = printed("return F.glu(x, 1)").text
    assert "assert width % 2 == 0" in text


def test_the_same_text_comes_on_every_hash_seed(tmp_path):
    script = tmp_path / "print_it.py"
    cases = [CASES[name] for name in ("batch statistics", "concatenation", "normalised")]
    sources = [reference(*case) for case in cases]
    script.write_text(
        "from curate.generator.generate import generate\n"
        f"for source in {sources!r}:\n    print(generate(source).text)\n"
    )
    own = os.environ.get("PYTHONHASHSEED")
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "2" if own == "1" else "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
    }
    made = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == "".join(f"{printed(*case).text}\n" for case in cases)


def test_sums_of_short_numbers_are_float32():
    text = reference("return x.sum(-1)", "torch.randn(6, 5000, dtype=torch.bfloat16)")
    sums = generate(text).text
    assert re.search(r"total = tl\.zeros\(.*tl\.float32\)", sums)
    scan = generate(text.replace("x.sum(-1)", "x.cumsum(-1)")).text
    assert "tl.bfloat16" not in scan
