"""Build training data for models that write Triton GPU kernels."""

__version__ = "0.1.0"
