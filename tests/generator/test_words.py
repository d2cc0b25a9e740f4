"""Variables, kernels and sizes of a program have the words of the reference."""

import re

from curate.generator.generate import generate

REFERENCE = """
import torch
from torch.nn import functional as F


class Model(torch.nn.Module):
    {doc}
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(24)

    def scaled(self, value):
        return value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, {arguments}):
{body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def printed(*body, arguments="x", inputs="torch.randn(6, 24)", doc=""):
    lines = "\n".join(f"        {line}" for line in body)
    text = REFERENCE.format(doc=doc, arguments=arguments, body=lines, inputs=inputs)
    return generate(text).text


def kernels(text):
    return re.findall(r"^def (\w+_kernel\w*)\(", text, re.MULTILINE)


def test_values_have_the_names_that_the_reference_assigns():
    text = printed(
        "error = x - y",
        "loss = F.relu(error.abs() - 0.1)",
        "return (loss * loss).sum(), error, loss",
        arguments="x, y",
        inputs="torch.randn(6, 24), torch.randn(6, 24)",
    )
    assert re.search(r"^ +error = x - y$", text, re.MULTILINE)
    assert re.search(r"^ +loss = tl\.maximum\(tl\.abs\(error\) - 0\.1", text, re.MULTILINE)
    assert "return (out0, error, loss)" in text or "return out0, error, loss" in text


def test_names_that_are_assigned_together_are_names_too():
    text = printed(
        "low, high = x.exp() - 1, x.sin() + 1",
        "return low * high + low / high",
    )
    assert re.search(r"^ +low = tl\.exp\(x\) - 1", text, re.MULTILINE), text
    assert re.search(r"^ +high = tl\.sin\(x\) \+ 1", text, re.MULTILINE), text


def test_what_a_method_returns_has_the_name_that_its_caller_gives_it():
    text = printed("normed = self.scaled(x)", "return normed.exp() + normed")
    assert re.search(r"^ +normed = x \* ", text, re.MULTILINE)
    assert kernels(text)[0].startswith("scaled") or kernels(text)[0].startswith("normed")


def test_a_name_that_is_assigned_anew_is_assigned_anew():
    text = printed("x = x * 2", "x = torch.tanh(x) + torch.exp(x)", "return x - x.abs()")
    assert re.search(r"^    x = x \* 2\.0$", text, re.MULTILINE)
    assert "x_1" not in text


def test_a_kernel_is_named_by_what_the_prompt_says_and_not_by_what_it_becomes():
    assert kernels(printed("return F.softplus(self.norm(x))"))[0] == "layer_norm_softplus_kernel"
    assert kernels(printed("return torch.linalg.vector_norm(x, dim=1)"))[0] == "vector_norm_kernel"
    text = printed(
        "return F.interpolate(x[:, None], scale_factor=2.0, mode='bilinear')",
        inputs="torch.randn(6, 8, 8)",
    )
    assert kernels(text)[0] == "interpolate_kernel"


def test_a_second_kernel_of_a_name_is_called_after_what_it_makes():
    text = printed(
        "q = torch.softmax(x, -1)",
        "k = torch.softmax(y, -2)",
        "return q, k",
        arguments="x, y",
        inputs="torch.randn(6, 24), torch.randn(2, 300, 5)",
    )
    names = kernels(text)
    assert "softmax_kernel" in names and "k_softmax_kernel" in names, names
    assert not re.search(r"_kernel_\d", text)


def test_a_docstring_is_the_formula_or_what_the_reference_says_of_itself():
    assert '"""Compute torch.sigmoid(x) + 1.\n' in printed("return torch.sigmoid(x) + 1")
    told = "Doubles what it is given, and adds one."
    assert f'"""{told}\n' in printed("return x * 2 + 1", doc=f'"""{told}"""')


def test_values_in_16_bits_have_names_too():
    text = printed(
        "part = x.exp() - 1",
        "return part * part",
        inputs="torch.randn(6, 24, dtype=torch.bfloat16)",
    )
    assert re.search(r"^ +part = tl\.exp\(x\) - 1", text, re.MULTILINE), text


def test_stages_say_what_each_of_them_does():
    text = printed(
        "mean = x.mean(0)",
        "spread = (x - mean).abs().amax(0)",
        "return (x - mean) / spread",
        inputs="torch.randn(900, 24)",
    )
    stages = re.findall(r'"""(\w+) stage of (.*?):', text)
    assert stages == [
        ("First", "mean = x.mean(0)"),
        ("Second", "mean = x.mean(0)"),
        ("First", "(x - mean).abs().amax(0)"),
        ("Second", "(x - mean).abs().amax(0)"),
        ("Last", "(x - mean) / spread"),
    ]


def test_sizes_have_the_names_that_the_reference_gives_them():
    text = printed(
        "b, steps, width = x.shape",
        "return x.mean(1) + steps",
        inputs="torch.randn(6, 8, 24)",
    )
    assert "b, steps, width = x.shape" in text


def test_of_sizes_that_are_equal_each_has_the_name_by_which_it_is_drawn():
    text = generate(
        """
import torch


class Model(torch.nn.Module):
    def forward(self, x, source):
        return x[source] * 2


num_nodes = 48
num_edges = 48
features = 48


def get_inputs():
    return [torch.randn(num_nodes, features), torch.randint(num_nodes, (num_edges,))]


def get_init_inputs():
    return []
"""
    ).text
    assert "num_edges = source.shape[0]" in text
    assert re.search("num_nodes = x.shape|num_nodes, features = x.shape", text)


def test_other_sizes_are_called_what_they_usually_are():
    text = printed("return x.mean(1)", inputs="torch.randn(6, 8, 10, 12)")
    assert "batch, channels, height, width = x.shape" in text


def test_a_reason_is_told():
    text = printed("return x.var(0)", inputs="torch.randn(600, 24)")
    assert "# Welford's method" in text
    assert text.count("# 64 bits") == 1


def test_a_product_is_named_without_what_made_its_factor():
    text = printed(
        "x = F.gelu(x)",
        "x = F.linear(x, w)",
        "return x",
        arguments="x, w",
        inputs="torch.randn(64, 24), torch.randn(40, 24)",
    )
    assert any("linear" in name and "gelu" not in name for name in kernels(text))
    assert "Compute F.linear(x, w)." in text or "Compute x = F.linear(x, w)." in text


def test_a_mean_beside_a_deviation_is_summed_once():
    text = printed("return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)")
    kernel = text.partition("def mean_std_long_kernel")[0]
    assert kernel.count("tl.sum(") == 2  # of elements, and of squares around their mean
    assert "tl.maximum" not in kernel


def test_the_second_part_of_a_cat_is_not_masked_again():
    kernel = printed("return torch.cat([x.sin(), x.cos()], -1)").partition("class ModelNew")[0]
    assert kernel.count("tl.where(") == 1


def test_both_branches_share_what_they_begin_with():
    text = printed("return torch.softmax(x, -1)", inputs="torch.randn(6, 5, 24)")
    assert text.count("n_rows = ") == 1


def test_elements_are_stored_beside_the_partial_sums_that_do_not_need_them():
    assert len(kernels(printed("y = x.sin()", "return y, y.sum()"))) == 2


def test_what_is_broadcast_along_a_batch_takes_an_axis_of_the_grid_and_no_division():
    text = printed(
        "return x * gain",
        arguments="x, gain",
        inputs="torch.randn(6, 48, 200), torch.randn(48, 1)",
    )
    kernel = text.partition("class ModelNew")[0]
    assert "tl.program_id(1)" in kernel
    assert "//" not in kernel and " % " not in kernel


def test_a_buffer_is_called_as_the_function_that_fills_it():
    text = printed("y = torch.tanh(self.norm(x) @ self.norm(x).mT)", "return y.softmax(-1) @ x")
    made = {re.sub(r"_\d+$", "", name) for name in re.findall(r"(\w+) = torch\.empty\(", text)}
    assert "norm" in " ".join(made) and "values" not in made


NESTED = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 40), nn.GELU())
        self.scale = nn.Parameter(torch.ones(40))

    def forward(self, x):
        scores = self.net(x)
        return torch.softmax(scores * self.scale, -1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x, y):
        return torch.cat((self.first(x), self.second(y)))


def get_inputs():
    return [torch.randn(6, 24), torch.randn(8, 24)]


def get_init_inputs():
    return []
"""


def test_what_is_computed_is_told_in_the_words_of_the_part_that_has_it():
    text = " ".join(generate(NESTED).text.split())
    assert "Compute first.net[0] (LayerNorm); or second.net[0] (LayerNorm)." in text
    assert "Compute part of first.net[1] (Linear); or part of second.net[1] (Linear)." in text
    assert "first.net[2] (GELU); torch.softmax(scores * self.scale, -1) in first" in text


def test_what_is_always_chosen_is_not_chosen():
    text = printed(
        "return F.interpolate(x, size=(8, 10), mode='bicubic')",
        inputs="torch.randn(2, 3, 12, 16)",
    )
    assert "tl.where" not in text and "False" not in text


def test_what_is_looked_at_has_the_name_that_the_reference_gives_it():
    text = printed(
        "first, second = x[:, :12], x[:, 12:]",
        "previous = F.pad(x, (1, -13))",
        "return first * second.exp() + previous",
    )
    for word in ("first", "second", "previous"):
        assert re.search(rf"^ +{word} = tl\.load\(", text, re.MULTILINE), text


PARTS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim, hidden_dim, patch_size):
        super().__init__()
        self.patch_size = patch_size
        self.net = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden_dim), nn.GELU())
        self.out = nn.Linear(hidden_dim, 24)

    def forward(self, x):
        x = x.unflatten(1, (-1, self.patch_size)).transpose(2, 3).flatten(2)
        return self.out(self.net(x))


def get_inputs():
    return [torch.randn(6, 40, 6)]


def get_init_inputs():
    return [24, 72, 4]
"""


def test_a_number_of_a_part_is_read_once_and_has_the_name_of_the_argument():
    forward = generate(PARTS).text.partition("def forward")[2]
    assert "hidden_dim = self.net[1].out_features\n" in forward
    assert forward.count("self.net[1].out_features") == 1
    assert "N = " not in forward and "triton.cdiv(hidden_dim, " in forward


def test_the_second_part_of_a_dimension_that_is_split_has_its_own_name():
    forward = generate(PARTS).text.partition("def forward")[2]
    assert "assert seq_len == self.patch_size or seq_len % self.patch_size == 0" in forward
    assert "assert self.patch_size * features == dim" in forward and "// (seq_len" not in forward
