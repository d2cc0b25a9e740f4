# %% reference
import torch
from torch import nn

intervals = 60


class Model(nn.Module):
    """Gives every point the gradient of the cell into which its run of points was summed."""

    def forward(self, grad, cells, starts, lengths):
        row, column, level, batch = cells[starts].unbind(1)
        return grad[batch, level, row, column].repeat_interleave(lengths, 0)


def get_init_inputs():
    return []


def get_inputs():
    batches, depth, height, width, channels = 2, 2, 16, 12, 20
    chosen = torch.randperm(batches * depth * height * width)[:intervals]
    extra = torch.randint(intervals, (4 * intervals,))
    lengths = 1 + torch.bincount(extra, minlength=intervals)
    starts = lengths.cumsum(0) - lengths
    batch, level = chosen // (depth * height * width), chosen // (height * width) % depth
    row, column = chosen // width % height, chosen % width
    cells = torch.stack([row, column, level, batch], 1).repeat_interleave(lengths, 0)
    grad = torch.rand(batches, depth, height, width, channels)
    return [grad, cells.int(), starts.int(), lengths.int()]


# %% cuda
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, grad, cells, starts, lengths):
        batch, depth, height, width, channels = grad.shape
        points, intervals = len(cells), len(starts)
        result = torch.empty(points, channels, device=grad.device)
        launch_cuda(
            "bev_pool_grad_kernel",
            -(-intervals * channels // 256),
            256,
            [
                *(batch, depth, height, width, points, channels, intervals),
                *(grad.contiguous(), cells.contiguous(), starts.contiguous()),
                *(lengths.contiguous(), result),
            ],
        )
        return result


# %% triton
class ModelNew(torch.nn.Module):
    def forward(self, grad, cells, starts, lengths):
        result = torch.empty(len(cells), grad.shape[4], device=grad.device)
        bev_pool_backward_launcher(
            result,
            grad.contiguous(),
            cells.contiguous(),
            starts.contiguous(),
            lengths.contiguous(),
        )
        return result
