"""Triton kernels: where they are launched, what they are compiled with, and whether they run."""
