# %% reference
import torch
from torch import nn

points = 300


class Model(nn.Module):
    """Sorts points into the voxels of a grid, and counts them.

    A voxel has room for some points only. Which ones it keeps is open, so that all points of a
    voxel are made equal: they lie in its middle, and what they carry is the voxel's.
    """

    def __init__(self, lowest, size, grid, room):
        super().__init__()
        self.lowest, self.size, self.grid, self.room = lowest, size, grid, room

    def forward(self, places, carried):
        lowest = torch.tensor(self.lowest, device=places.device, dtype=carried.dtype)
        middle = lowest + (places + 0.5) * self.size
        x, y, z = torch.floor((middle - lowest) / self.size).long().unbind(1)
        across, along, up = self.grid
        inside = (x >= 0) & (x < across) & (y >= 0) & (y < along) & (z >= 0) & (z < up)
        point = torch.cat([middle, carried[places.sum(1) + 3, None]], 1)[inside]
        voxel = ((z * along + y) * across + x)[inside]
        count = torch.bincount(voxel, minlength=across * along * up)
        kept = point.new_zeros(across * along * up, 4)
        kept[voxel] = point
        slot = torch.arange(self.room, device=places.device)
        return count.int(), kept[:, None] * (slot < count[:, None])[..., None]


def get_init_inputs():
    return [[-4.0, -2.0, 1.0], 0.5, [8, 6, 3], 4]


def get_inputs():
    # One step outside of the grid on every side.
    places = [torch.randint(-1, n + 1, (points,)) for n in (8, 6, 3)]
    return [torch.stack(places, 1).int(), torch.rand(21)]


# %% cuda
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, lowest, size, grid, room):
        super().__init__()
        self.lowest, self.size, self.grid, self.room = lowest, size, grid, room

    def forward(self, places, carried):
        device = places.device
        middle = torch.tensor(self.lowest, device=device) + (places + 0.5) * self.size
        points = torch.cat([middle, carried[places.sum(1) + 3, None]], 1)
        across, along, up = self.grid
        count = torch.zeros(across * along * up, dtype=torch.int32, device=device)
        kept = torch.zeros(len(count), self.room, 4, device=device)
        highest = [low + n * self.size for low, n in zip(self.lowest, self.grid)]
        launch_cuda(
            "generate_dense_voxels_kernel",
            -(-len(points) // 256),
            256,
            [
                *(points, len(points), *self.lowest, *highest, *[self.size] * 3),
                *(*self.grid, self.room, count, kept),
            ],
        )
        return count, kept


# %% triton
class ModelNew(torch.nn.Module):
    def __init__(self, lowest, size, grid, room):
        super().__init__()
        self.lowest, self.size, self.grid, self.room = lowest, size, grid, room

    def forward(self, places, carried):
        device = places.device
        middle = torch.tensor(self.lowest, device=device) + (places + 0.5) * self.size
        points = torch.cat([middle, carried[places.sum(1) + 3, None]], 1)
        across, along, up = self.grid
        count = torch.zeros(across * along * up, dtype=torch.int32, device=device)
        kept = torch.zeros(len(count), self.room, 4, device=device)
        highest = [low + n * self.size for low, n in zip(self.lowest, self.grid)]
        generate_dense_voxels_triton_kernel[(triton.cdiv(len(points), 256),)](
            *(points, len(points), *self.lowest, *highest, *[self.size] * 3),
            *(*self.grid, self.room, count, kept),
            cxpr_block_size=256,
        )
        return count, kept
