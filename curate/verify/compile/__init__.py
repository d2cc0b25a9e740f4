"""Triton's and CUDA's compilers without a GPU: TTIR of launches, binaries for any device."""
