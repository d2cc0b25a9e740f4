"""The source ``torch_ops``: problems made from PyTorch's own operators."""
