"""What a standalone file may count on: the modules it may import and the platform it is for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from curate.syntax import words

_STDLIB = words(
    "__future__ abc array bisect cmath collections contextlib copy dataclasses datetime decimal "
    "enum fractions functools hashlib heapq inspect itertools keyword logging math numbers "
    "operator os pprint random re statistics string struct sys textwrap threading time traceback "
    "types typing typing_extensions uuid warnings weakref"
)

_DENIED = (
    "torch.distributed",
    "torch.hub",
    "torch.multiprocessing",
    "torch.utils.cpp_extension",
    "torch.utils.data",
    "torch.utils.tensorboard",
    "triton.backends",
    "triton.compiler",
    "triton.experimental",
    *(f"triton.tools.{name}" for name in ("build", "compile", "disasm", "extra", "link")),
    "triton._C",
    "triton.ops",
)

_EXTRA = tuple(f"triton.language.extra.{name}" for name in ("libdevice", "cuda", "hip"))
"""What Triton itself ships there; vendors' forks add theirs."""


@dataclass(frozen=True)
class Environment:
    """Where a standalone file runs.

    Attributes:
        libraries: what it may import besides the standard library's parts that stay in memory.
        decides: whether conditions on the platform are decided (`truth`), for code that asks
            which GPU, which vendor or which version it meets.
        substitutes: whether parts of frameworks that do not compute are replaced.
    """

    libraries: tuple[str, ...]
    decides: bool = False
    substitutes: bool = False

    def is_allowed(self, module: str) -> bool:
        """Whether a standalone file may import this module."""
        head = module.partition(".")[0]
        if head in _STDLIB:
            return True
        if module.startswith("triton.language.extra.") and not module.startswith(_EXTRA):
            return False  # another vendor's
        return head in self.libraries and not module.startswith(_DENIED)

    def truth(self, condition: Node) -> bool | None:
        """Return what a condition is here, by the words in it; None where they do not say.

        The platform of kernels is NVIDIA's, with a recent torch and triton, whatever machine
        reads the file.
        """
        if condition.type in ("identifier", "attribute") and _last_word(condition) == (
            "TYPE_CHECKING"
        ):
            return False
        return _truth(condition) if self.decides else None


TASKS = Environment(("torch", "numpy"), substitutes=True)
"""Where PyTorch problems run."""
KERNELS = Environment(("torch", "triton"), decides=True)
"""Where kernels and their wrappers run."""

_TRUE = re.compile(r"_*(has|have|is|use|with)_*triton\w*|is_(cuda|nvidia)")
_FALSE = re.compile(
    r"_*(is|use|has|on|platform)?_*(rocm|hip|amd|cdna\d?|rdna\d?|gfx\w+|npu|xpu|musa|intel|ascend|"
    r"metax|maca|cambricon|mlu|iluvatar|hpu|tpu|mps|intel_\w+|amd_\w+|hip_\w+)(_available|_backend)?"
)
_VERSION = re.compile(r"(torch|triton)\.__version__|TRITON_VERSION", re.IGNORECASE)
_NEWER = {">=": True, ">": True, "<": False, "<=": False, "==": False, "!=": True}


def _truth(node: Node) -> bool | None:
    if node.type in ("true", "false"):
        return node.type == "true"
    if node.type == "parenthesized_expression":
        return _truth(node.named_children[0])
    if node.type == "not_operator":
        known = _truth(node.named_children[0])
        return None if known is None else not known
    if node.type == "boolean_operator":
        return _combined(node)
    if node.type == "comparison_operator":
        return _compared(node)
    if node.type == "call":
        function = node.child_by_field_name("function")
        return _named(_last_word(function)) if function is not None else None
    if node.type in ("identifier", "attribute"):
        return _named(_last_word(node))
    return None


def _combined(node: Node) -> bool | None:
    left, right = (_truth(child) for child in node.named_children)
    decisive = any(child.type == "or" for child in node.children)  # `True or x` is True
    if decisive in (left, right):
        return decisive
    return None if None in (left, right) else not decisive


def _compared(node: Node) -> bool | None:
    """Return whether a version is recent enough; every known one is."""
    left = node.named_children[0]
    signs = [child.type for child in node.children if not child.is_named]
    if len(signs) == 1 and _VERSION.search((left.text or b"").decode()):
        return _NEWER.get(signs[0])
    return None


def _named(word: str) -> bool | None:
    if _TRUE.fullmatch(word.lower()):
        return True
    return False if _FALSE.fullmatch(word.lower()) else None


def _last_word(node: Node) -> str:
    return (node.text or b"").decode().rpartition(".")[2]
