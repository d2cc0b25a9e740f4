"""A family of compositions that multiply quantised numbers: int8, float8, nibbles.

Sizes are such that GPUs take them: more than 16 rows, and multiples of 16 elsewhere.
"""

from __future__ import annotations

from curate.sources.torch_ops.draft import ProblemDraft
from curate.sources.torch_ops.families.stages import chain

_CODES = "torch.randint(-127, 128, ({}), dtype=torch.int8)"


def quantised_product(d: ProblemDraft) -> None:
    """A product of quantised numbers, and what follows it."""
    rows: tuple[str, ...] = (d.size("rows", 64, 96, 128),)
    inputs, outputs = d.size("in_features", 96, 128, 192, 256), d.size("out_features", 80, 128, 160)
    write = d.pick(_int8, _dynamic_int8, _weight_only, _weight_only, _float8, _nibbles)
    if write in (_weight_only, _float8, _nibbles) and d.chance(0.4):
        rows = (d.size("batch_size", 2, 3, 4), *rows)
    write(d, rows, inputs, outputs)
    d.dims = (*rows, outputs)
    if d.chance(0.4):
        d.let("x", f"x + {d.parameter('bias', outputs)}", "a bias added")
    if d.chance(0.7):
        chain(d, d.pick(1, 2), norm=0.0)
    if d.chance(0.4):
        d.result, name = d.pick(("x.half()", "float16"), ("x.to(torch.bfloat16)", "bfloat16"))
        d.parts.append(f"the result in {name}")


def _buffer(d: ProblemDraft, name: str, *dims: str, draw: str) -> str:
    for dim in ("in_features", "out_features"):
        d.argument(dim)
    d.layers.append(f"{name} = {draw.format(', '.join(dims))}")
    d.layers.append(f'self.register_buffer("{name}", {name})')
    return f"self.{name}"


def _int8(d: ProblemDraft, rows: tuple[str, ...], inputs: str, outputs: str) -> None:
    d.take("x", *rows, inputs, draw=_CODES)
    weight = _buffer(d, "weight", outputs, inputs, draw=_CODES)
    d.let("sums", f"torch._int_mm(x, {weight}.t())", "int8 product with int32 sums")
    scales = ["2e-5"]
    if d.chance(0.7):
        scales = [_buffer(d, "weight_scale", outputs, draw="torch.rand({}) * 1e-3 + 1e-4")]
        scales.append(d.pick("0.02", "row_scale"))
    if "row_scale" in scales:
        d.take("row_scale", *rows, "1", draw="torch.rand({}) * 0.04 + 0.001")
    d.let("x", f"sums.float() * {' * '.join(scales)}", f"dequantised by {_told(scales)}")


def _told(scales: list[str]) -> str:
    if len(scales) == 1:
        return "one scale"
    return "a scale per column" + (" and one per row" if "row_scale" in scales else "")


def _dynamic_int8(d: ProblemDraft, rows: tuple[str, ...], inputs: str, outputs: str) -> None:
    d.take("x", *rows, inputs)
    weight = _buffer(d, "weight", outputs, inputs, draw=_CODES)
    scale = _buffer(d, "weight_scale", outputs, draw="torch.rand({}) * 1e-3 + 1e-4")
    least = d.pick(".clamp(min=1e-6) / 127.0", " / 127.0 + 1e-8")
    d.let("scale", f"x.abs().amax(dim=-1, keepdim=True){least}")
    d.let("codes", "torch.round(x / scale).clamp(-128, 127).to(torch.int8)")
    d.parts.append("rows quantised to int8 by their largest value")
    d.let("sums", f"torch._int_mm(codes, {weight}.t())", "int8 product")
    d.let("x", f"sums * scale * {scale}", "dequantised")


def _weight_only(d: ProblemDraft, rows: tuple[str, ...], inputs: str, outputs: str) -> None:
    d.take("x", *rows, inputs, draw=f"torch.randn({{}}{d.pick('', ', dtype=torch.bfloat16')})")
    weight = f"{_buffer(d, 'weight', outputs, inputs, draw=_CODES)}.to(x.dtype)"
    scale = _buffer(d, "scale", outputs, draw="torch.rand({}) * 1e-3 + 1e-4") + ".to(x.dtype)"
    part = "int8 weight with a scale per output column"
    if d.chance(0.3):
        draw = "torch.randint(-16, 17, ({},), dtype=torch.int8)"
        zero = _buffer(d, "zero_point", outputs, draw=draw)
        weight = d.let("codes", f"{weight} - {zero}[:, None]")
        part = f"{part} and a zero point"
    part = f"product with an {part}"
    if d.chance(0.7):
        d.let("weight", f"{weight} * {scale}[:, None]", part)
        d.let("x", d.pick("F.linear(x, weight)", "x @ weight.t()"))
    else:
        d.let("weight", weight)
        d.let("x", f"F.linear(x, weight) * {scale}", part)


def _float8(d: ProblemDraft, rows: tuple[str, ...], inputs: str, outputs: str) -> None:
    d.take("x", *rows, inputs, draw=f"torch.randn({{}}{d.pick('', ', dtype=torch.bfloat16')})")
    kind = d.pick("float8_e4m3fn", "float8_e5m2")
    draw = f"torch.randn({{}}).to(torch.{kind})"
    weight = _buffer(d, "weight", outputs, inputs, draw=draw)
    scale = _buffer(d, "scale", outputs, draw="torch.rand({}) * 0.1 + 0.01")
    d.let("x", f"F.linear(x, {weight}.to(x.dtype)) * {scale}.to(x.dtype)")
    d.parts.append(f"product with a {kind} weight, scaled per column")


def _nibbles(d: ProblemDraft, rows: tuple[str, ...], inputs: str, outputs: str) -> None:
    d.take("x", *rows, inputs)
    draw = "torch.randint(0, 256, ({} // 2), dtype=torch.uint8)"
    packed, group = _buffer(d, "packed", outputs, inputs, draw=draw), d.pick(16, 32)
    d.layers.append(f"self.shape = ({outputs}, {inputs})")
    scale = _buffer(d, "scale", outputs, inputs, draw=f"torch.rand({{}} // {group}) * 0.05 + 0.005")
    d.let("low", f"({packed} & 15).to(x.dtype) - 8.0")
    d.let("high", f"({packed} >> 4).to(x.dtype) - 8.0")
    if d.chance(0.7):
        d.let("codes", "torch.stack((low, high), dim=-1).reshape(self.shape)")
    else:
        d.let("codes", "torch.cat((low, high), dim=-1)")
    d.let("weight", f"codes * {scale}.repeat_interleave({group}, dim=1)")
    d.let("x", "F.linear(x, weight)", f"product with an int4 weight, a scale per {group} inputs")


FAMILIES = (quantised_product,)
