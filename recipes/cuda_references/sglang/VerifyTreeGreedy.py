# %% reference
import torch
from torch import nn

trees = 6


class Model(nn.Module):
    """Follows each tree of draft tokens as long as one of the next is what the target predicts."""

    def __init__(self, longest):
        super().__init__()
        self.longest = longest

    def forward(self, drafted, place, child, sibling, target):
        predicted = torch.zeros(target.numel(), dtype=torch.int32)
        accepted = torch.full((len(drafted), self.longest), -1, dtype=torch.int32)
        count = torch.zeros(len(drafted), dtype=torch.int32)
        tables = [table.tolist() for table in (drafted, place, child, sibling)]
        wanted = target.flatten().tolist()
        for tree, (tokens, places, children, siblings) in enumerate(zip(*tables)):
            node, last = 0, places[0]
            path = [last]
            while len(path) < self.longest:
                node = children[node]
                while node != -1 and tokens[node] != wanted[last]:
                    node = siblings[node]
                if node == -1:
                    break
                predicted[last] = wanted[last]
                last = places[node]
                path.append(last)
            predicted[last] = wanted[last]
            accepted[tree, : len(path)] = torch.tensor(path, dtype=torch.int32)
            count[tree] = len(path) - 1
        device = drafted.device
        return predicted.to(device), accepted.to(device), count.to(device)


def get_init_inputs():
    return [5]


def get_inputs():
    size = 12
    child = torch.full((trees, size), -1)
    sibling = torch.full((trees, size), -1)
    for tree in range(trees):
        newest = {}
        for node in range(1, size):
            parent = int(torch.randint(max(0, node - 4), node, ()))
            if parent in newest:
                sibling[tree, newest[parent]] = node
            else:
                child[tree, parent] = node
            newest[parent] = node
    place = torch.arange(trees * size).reshape(trees, size)
    drafted, target = torch.randint(2, (2, trees, size))
    return [drafted, place, child, sibling, target]


# %% cuda
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, longest):
        super().__init__()
        self.longest = longest

    def forward(self, drafted, place, child, sibling, target):
        trees, size = drafted.shape
        small = {"dtype": torch.int32, "device": drafted.device}
        predicted = torch.zeros(trees * size, **small)
        accepted = torch.full((trees, self.longest), -1, **small)
        count = torch.empty(trees, **small)
        tables = [table.contiguous() for table in (drafted, place, child, sibling, target)]
        launch_cuda(
            "VerifyTreeGreedy",
            trees,
            1,
            [predicted, accepted, count, *tables, trees, self.longest, size],
        )
        return predicted, accepted, count


# %% triton
class ModelNew(torch.nn.Module):
    def __init__(self, longest):
        super().__init__()
        self.longest = longest

    def forward(self, drafted, place, child, sibling, target):
        trees, size = drafted.shape
        small = {"dtype": torch.int32, "device": drafted.device}
        predicted = torch.zeros(trees * size, **small)
        accepted = torch.full((trees, self.longest), -1, **small)
        count = torch.empty(trees, **small)
        tables = [table.contiguous() for table in (drafted, place, child, sibling, target)]
        verify_tree_greedy_triton(predicted, accepted, count, *tables)
        return predicted, accepted, count
