"""Problems from `torch.nn.Module` classes: arguments with which a module runs."""
