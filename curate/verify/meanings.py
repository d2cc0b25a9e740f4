"""What codes in a verdict mean, in words: the caveats, and the families of inputs."""

from __future__ import annotations

CAVEATS = {
    "own_sizes_only": "it raised on other sizes",
    "some_sizes_only": "it fails at some other sizes",
    "own_ranks_only": "it fails on other ranks or broadcast operands",
    "own_arguments_only": "it fails with other arguments",
    "own_integers_only": "it fails on integers or masks beyond the file's",
    "own_types_only": "it is wrong for some other input types",
    "usual_numbers_only": "it fails on subnormal or large numbers",
    "finite_only": "it fails, or had no time left, on NaN and infinities",
    "contiguous_only": "it fails on gaps, channels last or transposed inputs",
    "absolute_accuracy": "small results are only as close as usual ones",
    "low_precision": "it is right only if 10 bits are enough",
    "constant_inputs": "some inputs were always the same",
    "calls_differ": "equal calls sent the device different work",
    "keeps_state": "it keeps something between calls",
    "first_calls_only": "its reference remembers calls; first ones were compared",
    "own_numbers_only": "the reference refused all numbers but the file's",
    "shared_memory": "results share memory with each other, inputs or parameters",
    "own_parameters_only": "it fails once parameters or buffers change in place",
    "has_fallback": "it can do without its kernels",
    "untried_branches": "some branches led to no right result",
    "untried_configurations": "no call took some tuning configurations",
    "untried_grids": "some grid axes had one program only",
    "smaller_sizes_only": "it was compared at smaller sizes only",
    "fewer_trials": "work ran out before the last test",
    "races_unproved": "its blocks meet in memory; only a GPU judged it",
    "torch_computes": "PyTorch computes a part of it",
    "other_layout": "its results, unlike the reference's, are not contiguous",
    "breaks_promises": "it promises the compiler what does not hold",
    "narrow_offsets": "its offsets have only 32 bits",
    "reads_values": "its host functions read tensors' values",
    "looks_around": "its host functions look at types, files or addresses",
    "eval_mode_only": "it fails in training mode",
    "train_mode_only": "it is right in training mode only",
}
"""What each caveat of a `curate.verify.verdict.Verdict` says; what fails is wrong, or raises."""

FAMILIES = {
    "own": "inputs as the file draws them",
    "steps": "inputs are multiples of one half and numbers from the file, where comparisons tip; "
    "some rows are zero or one",
    "signed": "inputs are normal around zero",
    "shifted": "inputs are normal, with a mean of 64 spreads",
    "large": "inputs are normal, with spreads from 1 to 30,000",
    "small": "inputs are normal, with a spread of 0.001 and some a millionth of that",
    "outlier": "inputs as the file draws them, but for two elements, one of them 1,000 times as "
    "large",
    "negative": "inputs are below zero everywhere",
}
"""What inputs of each family of draws are; `curate.problem.draw` draws them."""
