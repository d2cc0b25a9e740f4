"""Programs that PyTorch's compiler writes, rewritten to stand alone."""
