"""Cross entropy with label smoothing, averaged over the rows by a second kernel."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

batch_size = 45


class Model(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels, label_smoothing=0.1)


def get_inputs():
    return [torch.randn(batch_size, 77), torch.randint(0, 77, (batch_size,))]


def get_init_inputs():
    return []


@triton.jit
def row_loss_kernel(logits_ptr, labels_ptr, loss_ptr, n_classes, smoothing, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    classes = tl.arange(0, BLOCK)
    mask = classes < n_classes
    logits = tl.load(logits_ptr + row * n_classes + classes, mask=mask, other=float("-inf"))
    label = tl.load(labels_ptr + row)
    largest = tl.max(logits, axis=0)
    log_total = largest + tl.log(tl.sum(tl.exp(logits - largest), axis=0))
    picked = tl.sum(tl.where(classes == label, logits, 0.0), axis=0)
    mean = tl.sum(tl.where(mask, logits, 0.0), axis=0) / n_classes
    loss = log_total - (1.0 - smoothing) * picked - smoothing * mean
    tl.store(loss_ptr + row, loss)


@triton.jit
def mean_kernel(loss_ptr, out_ptr, n_rows, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_rows, BLOCK):
        acc += tl.load(loss_ptr + start + rows, mask=start + rows < n_rows, other=0.0)
    tl.store(out_ptr, tl.sum(acc, axis=0) / n_rows)


class ModelNew(nn.Module):
    def forward(self, logits, labels):
        logits = logits.contiguous()
        n_rows, n_classes = logits.shape
        loss = torch.empty(n_rows, device=logits.device, dtype=torch.float32)
        out = torch.empty((), device=logits.device, dtype=torch.float32)
        row_loss_kernel[(n_rows,)](logits, labels, loss, n_classes, 0.1, BLOCK=128)
        mean_kernel[(1,)](loss, out, n_rows, BLOCK=32)
        return out
