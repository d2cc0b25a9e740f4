"""Steps that write Triton programs for PyTorch problems."""
