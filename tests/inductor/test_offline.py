"""Inductor's output for GPUs that are not there, and what is left behind afterwards."""

import contextlib
import os
import re
import textwrap
from typing import get_args

import pytest
import torch
import triton
from torch._dynamo import device_interface
from torch._inductor.runtime.hints import DeviceProperties

from curate.devices import DEVICES
from curate.generator.absent_gpu import target_gpu
from curate.inductor import configurations, offline
from curate.inductor.inductor import Target

SOFTMAX = """
def forward(self, x):
    return torch.softmax(x, -1)
"""


def reference(forward, inputs="[torch.randn(32, 64)]", init="pass"):
    """A file in KernelBench's form around one ``forward`` and one constructor body."""
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{textwrap.indent(textwrap.dedent(init).strip(), " " * 8)}

{textwrap.indent(textwrap.dedent(forward).strip(), " " * 4)}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""


def generate(source, target="cuda:90", own_products=False, dynamic=False):
    return configurations.compile_reference(source, target, own_products, dynamic)


def test_the_option_and_the_table_of_devices_name_the_same_targets():
    assert set(get_args(Target)) == set(DEVICES)


@pytest.mark.parametrize("target", DEVICES)
def test_every_target_gets_a_kernel_with_its_own_properties(target):
    made = generate(reference(SOFTMAX), target)
    arch = DEVICES[target].arch
    (name,) = made.spec["kernels"]
    assert name.startswith("triton_per_fused__softmax")
    assert f"cc={arch!r}" in made.code
    assert f"warp_size={64 if target.startswith('hip') else 32}" in made.code
    assert made.spec["kernels"][name]["kwargs"]["XBLOCK"] >= 1


def test_everything_is_as_before_after_a_target():
    def state():
        cuda = {name: getattr(torch.cuda, name) for name in dir(torch.cuda)}
        return (
            cuda,
            dict(device_interface.device_interfaces),
            dict(os.environ),
            torch.version.hip,
            torch.Tensor.__invert__,
            torch.Tensor.copy_,
            triton.runtime.driver.__dict__.copy(),
            torch._inductor.config.save_config_portable(),
        )

    device_interface.get_interface_for_device("cuda")
    before = state()
    generate(reference(SOFTMAX), "hip:gfx942")
    assert DeviceProperties.create.cache_info().currsize == 0
    with pytest.raises(ValueError, match="inside"), target_gpu("cuda:90"):
        assert torch.cuda.is_available()
        raise ValueError("inside")
    assert state() == before


def test_the_spec_maps_parameters_buffers_constants_and_nested_inputs():
    made = generate(
        reference(
            """
            def forward(self, pair, alpha):
                q, k = pair
                self.count.add_(1)
                k["key"].mul_(2)
                y = self.norm(q) * k["key"] * alpha * self.scale
                return {"y": y, "rest": [y + torch.tensor([1.0] * 8), None, 3]}, y.sum()
            """,
            '[(torch.randn(4, 8), {"key": torch.randn(8)}), 0.5]',
            """
            self.norm = nn.BatchNorm1d(8)
            self.register_buffer("count", torch.zeros(3))
            self.scale = torch.arange(8.0)
            """,
        )
    )
    spec = made.spec
    inputs = {given["name"]: (given["kind"], given["target"]) for given in spec["inputs"]}
    assert inputs == {
        "p_norm_weight": ("parameter", "norm.weight"),
        "p_norm_bias": ("parameter", "norm.bias"),
        "b_norm_running_mean": ("buffer", "norm.running_mean"),
        "b_norm_running_var": ("buffer", "norm.running_var"),
        "b_count": ("buffer", "count"),
        "c_scale": ("constant", "scale"),
        "c_lifted_tensor_0": ("constant", None),
        "pair_0": ("input", [0, 0]),
        "pair_1_key": ("input", [0, 1, "key"]),
    }
    unpacked = re.search(r"    (.*) = args\n", made.code).group(1).split(", ")
    assert unpacked == [given["name"] for given in spec["inputs"]]
    assert spec["scalars"] == [{"target": 1, "value": 0.5}]
    assert spec["constants"]["c_scale"]["values"] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert spec["outputs"] == [
        {"kind": "mutated_buffer", "target": "count"},
        {"kind": "mutated_input", "target": [0, 1, "key"]},
        *({"kind": "user", "target": i} for i in range(5)),
    ]
    rest = {"list": [1, {"none": True}, {"const": 3}]}
    assert spec["out_tree"] == {"tuple": [{"dict": {"y": 0, "rest": rest}}, 4]}
    assert "aten.batch_norm.default" in spec["ops"]


def test_constants_of_one_element_become_literals():
    made = generate(reference("def forward(self, x):\n    return x * torch.tensor(2.5)"))
    assert [given["name"] for given in made.spec["inputs"]] == ["x"]
    assert "2.5" in made.code


def test_sizes_become_arguments_and_a_result_may_be_one():
    made = generate(
        reference("def forward(self, x):\n    return x.cumsum(1), x.shape[0]"), dynamic=True
    )
    spec = made.spec
    assert spec["dynamic"]
    assert spec["static_because"] is None
    places = sorted((s["input"], s["dim"], s["hint"]) for s in spec["sizes"].values())
    assert places == [(0, 0, 32), (0, 1, 64)]
    assert all(set(re.findall(r"s\d+", guard)) <= set(spec["sizes"]) for guard in spec["guards"])
    assert not generate(reference(SOFTMAX)).spec["dynamic"]


def test_sizes_stay_constant_where_export_needs_numbers():
    made = generate(
        reference("""
            def forward(self, x):
                assert type(x.shape[0]) is int, "a number is needed"
                return torch.relu(x)
        """),
        dynamic=True,
    )
    assert not made.spec["dynamic"]
    assert made.spec["static_because"] == "AssertionError: a number is needed"


def test_long_size_expressions_leave_only_the_batch_variable():
    made = generate(
        reference(
            "def forward(self, x):\n    return torch.relu(self.conv(x))",
            "[torch.randn(2, 4, 6, 7, 8)]",
            "self.conv = nn.ConvTranspose3d(4, 4, 3, stride=2)",
        ),
        dynamic=True,
    )
    assert [(s["input"], s["dim"]) for s in made.spec["sizes"].values()] == [(0, 0)]
    assert made.spec["static_because"] == "sizes of intermediate results are long expressions"


def test_a_module_that_reads_values_while_it_is_built():
    source = reference(
        "def forward(self, x):\n    return x * self.rate",
        init="self.rate = torch.linspace(0, 1, 3)[1].item()",
    )
    assert "0.5" in generate(source).code


def test_inputs_too_large_for_memory_cost_nothing():
    huge = "[torch.randn(1 << 20, 1 << 20)]"
    assert generate(reference(SOFTMAX, huge)).spec["kernels"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_own_products_leaves_no_library_call(dynamic):
    source = reference(
        "def forward(self, x):\n    return F.relu(self.fc(x))", init="self.fc = nn.Linear(64, 48)"
    )
    library = generate(source, dynamic=dynamic)
    native = generate(source, own_products=True, dynamic=dynamic)
    # With sizes as symbols the code is for bfloat16 too, where the bias belongs to the product.
    assert library.extern_calls == (f"extern_kernels.{'addmm' if dynamic else 'mm'}",)
    assert native.extern_calls == ()
    assert "tl.dot(" in native.code


def test_attention_is_written_out():
    source = reference(
        "def forward(self, q):\n    return F.scaled_dot_product_attention(q, q, q)",
        "[torch.randn(2, 4, 32, 16)]",
    )
    assert generate(source).extern_calls == ("extern_kernels.bmm",)


def test_arctangent_is_a_library_call_and_no_inline_assembly():
    made = generate(reference("def forward(self, x):\n    return torch.atan(x)"))
    assert "libdevice.atan(" in made.code
    assert "inline_asm" not in made.code


def test_boolean_negation_with_variable_sizes():
    source = reference(
        "def forward(self, x):\n    return torch.logical_not(x), ~x", "[torch.rand(4, 8) > 0.5]"
    )
    assert generate(source, dynamic=True).spec["dynamic"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_assignment_into_a_part(dynamic):
    source = reference("""
        def forward(self, x):
            y = torch.zeros_like(x)
            y[:, 1:] = x[:, :-1]
            return y
    """)
    made = generate(source, dynamic=dynamic)
    assert made.spec["dynamic"] == dynamic
    assert made.spec["static_because"] is None


def test_the_code_is_the_same_each_time_and_names_no_file():
    source = reference(SOFTMAX)
    first, second = generate(source, dynamic=True), generate(source, dynamic=True)
    assert first == second
    assert "/tmp" not in first.code


@pytest.mark.parametrize(
    ("forward", "shape", "blocks"),
    [
        ("torch.relu(x)", "300, 32", {"XBLOCK": 1024}),
        ("torch.layer_norm(x, (64,))", "500, 64", {"XBLOCK": 32}),
        ("torch.layer_norm(x, (1024,))", "500, 1024", {"XBLOCK": 1}),
        ("x.sum(1)", "64, 5000", {"XBLOCK": 1, "R0_BLOCK": 2048}),
        ("x.mean(0)", "5000, 64", {"XBLOCK": 16, "R0_BLOCK": 64}),
    ],
)
def test_a_tile_keeps_a_program_busy_at_any_size(forward, shape, blocks):
    source = reference(f"def forward(self, x):\n    return {forward}", f"[torch.randn({shape})]")
    first = next(iter(generate(source).spec["kernels"].values()))
    assert first["kwargs"] == blocks


def test_what_a_spec_cannot_say_is_unsupported():
    with pytest.raises(offline.UnsupportedModule, match="type dict"):
        generate(reference("def forward(self, x):\n    return {1: x + 1}"))


def test_bfloat16_is_refused_where_the_device_lacks_it():
    source = reference(SOFTMAX, "[torch.randn(4, 8, dtype=torch.bfloat16)]")
    with pytest.raises(offline.UnsupportedModule, match="BF16"):
        generate(source, "cuda:75")
    assert generate(source, "cuda:80").spec["kernels"]


def test_control_flow_on_values_cannot_be_exported():
    source = reference("def forward(self, x):\n    return x if x.sum() > 0 else -x")
    with pytest.raises(offline.ExportFailed, match="GuardOnDataDependentSymNode"):
        generate(source, dynamic=True)


def test_a_tensor_kept_between_calls_cannot_be_exported():
    source = reference(
        """
        def forward(self, x):
            self.hidden.add_(x)
            return torch.tanh(self.hidden)
        """,
        init="self.hidden = torch.zeros(32, 64)",
    )
    with pytest.raises(offline.ExportFailed, match="hidden is mutated"):
        generate(source)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("own_products", [False, True])
def test_a_real_device_gets_the_same_kernels(monkeypatch, dynamic, own_products):
    source = reference(
        "def forward(self, x):\n    return torch.softmax(self.norm(self.fc(x)), -1).cumsum(0)",
        init="self.fc = nn.Linear(64, 48)\nself.norm = nn.LayerNorm(48)",
    )
    major, minor = torch.cuda.get_device_capability()
    target = f"cuda:{major}{minor}"
    imagined = generate(source, target, own_products, dynamic)
    monkeypatch.setattr(offline, "target_gpu", lambda target: contextlib.nullcontext())
    real = generate(source, target, own_products, dynamic)
    properties = r"DeviceProperties\([^)]*\)"
    assert re.sub(properties, "", imagined.code) == re.sub(properties, "", real.code)
    assert imagined.spec == real.spec


def test_a_module_that_draws_numbers_is_refused() -> None:
    text = HEAD_OF_RANDOM + "        return x * torch.rand(x.shape[0], 1)\n" + TAIL_OF_RANDOM
    with pytest.raises(offline.UnsupportedModule, match="random operator"):
        configurations.compile_reference(text, "cuda:90", False, False)


HEAD_OF_RANDOM = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
TAIL_OF_RANDOM = """

def get_inputs():
    return [torch.rand(8, 4)]


def get_init_inputs():
    return []
"""
