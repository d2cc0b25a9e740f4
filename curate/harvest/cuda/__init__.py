"""CUDA kernels, and the Triton kernels of the same package that do the same."""
