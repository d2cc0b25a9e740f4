"""`curate generate`: a PyTorch module in, a Triton program out; and the sampling it shares."""
