"""Products of matrices, as Triton kernels with `tl.dot`."""
