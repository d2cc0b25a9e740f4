"""Programs printed from the loops that PyTorch's compiler has fused."""
