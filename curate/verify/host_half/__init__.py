"""The process in which a candidate's Python runs: on handles of tensors, without any numbers."""
