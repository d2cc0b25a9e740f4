"""The import statements of a program."""

from curate.generator.generate import imports


def test_imports_are_in_one_order_whatever_the_hash_seed():
    given = ["from torch import nn", "from torch import arange", "from math import pi"]
    wanted = ["from math import pi", "", "import torch"]
    wanted += ["from torch import arange", "from torch import nn"]
    wanted += ["import triton", "import triton.language as tl"]
    assert imports(given, "torch.empty nn.Linear").splitlines() == wanted
    assert imports(given[::-1], "torch.empty nn.Linear").splitlines() == wanted


def test_what_only_a_docstring_or_a_comment_names_is_not_imported():
    text = 'def relu_kernel():\n    """Compute F.relu(x)."""\n    pass  # see F.relu\n'
    assert "torch.nn.functional" not in imports(["import torch.nn.functional as F"], text)
