"""The judge's steps in a recipe: ``compile``, ``nvcc``, ``verify`` and ``verify_cuda``."""
