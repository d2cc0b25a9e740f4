"""From source files to problems and kernels that stand alone: PyTorch modules, Triton, CUDA."""
