"""Layouts: what the tensor ``x`` of a composition is, and its realistic sizes."""

from __future__ import annotations

from curate.sources.torch_ops.draft import ProblemDraft


def rows(d: ProblemDraft) -> None:
    """``x`` of (batch, features)."""
    batch = d.size("batch_size", 64, 96, 128, 200, 256)
    d.dims = (batch, d.size("features", 192, 256, 384, 500, 640, 768, 1024))
    d.take("x", *d.dims)


def tokens(d: ProblemDraft) -> None:
    """``x`` of (batch, sequence, features)."""
    batch, length = d.size("batch_size", 2, 4, 6, 8), d.size("seq_len", 48, 64, 100, 128)
    d.dims = (batch, length, d.size("hidden_size", 96, 128, 192, 256, 320))
    d.take("x", *d.dims)


def signal(d: ProblemDraft) -> None:
    """``x`` of (batch, channels, length)."""
    batch, channels = d.size("batch_size", 4, 8, 12), d.size("channels", 16, 24, 32, 64)
    d.dims = (batch, channels, d.size("length", 128, 200, 256, 400))
    d.axis = 1
    d.take("x", *d.dims)


def images(d: ProblemDraft) -> None:
    """``x`` of (batch, channels, height, width)."""
    batch, channels = d.size("batch_size", 4, 6, 8), d.size("channels", 8, 16, 24, 32)
    height = d.size("height", 20, 24, 28, 32)
    d.dims = (batch, channels, height, d.size("width", 20, 24, 28, 36))
    d.axis = 1
    d.take("x", *d.dims)


def volumes(d: ProblemDraft) -> None:
    """``x`` of (batch, channels, depth, height, width)."""
    batch, channels = d.size("batch_size", 2, 3, 4), d.size("channels", 8, 16)
    depth, height = d.size("depth", 6, 8, 10), d.size("height", 14, 16, 20)
    d.dims = (batch, channels, depth, height, d.size("width", 14, 16, 20))
    d.axis = 1
    d.take("x", *d.dims)


def any_layout(d: ProblemDraft) -> None:
    """``x`` of any of the layouts."""
    d.pick(rows, tokens, tokens, signal, images, images, volumes)(d)
