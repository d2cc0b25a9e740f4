"""What codes in a verdict mean, in words: the caveats, and the families of inputs."""

from __future__ import annotations

CAVEATS = {
    "own_sizes_only": "it raised on other sizes of inputs",
    "some_sizes_only": "it fails at other sizes that the reference takes",
    "own_ranks_only": "it fails on inputs with one dimension more or less",
    "own_arguments_only": "it fails with other arguments for its constructor or for forward",
    "own_integers_only": "it fails on integers that the file does not draw: negative or larger",
    "usual_numbers_only": "it fails on numbers from 2**-140 to 2**40",
    "finite_only": "it fails, or had no time left, on inputs with NaN and infinities",
    "contiguous_only": "it fails on inputs with gaps, channels last or transposed in memory",
    "absolute_accuracy": "on small inputs it is only as close as on inputs of the usual size",
    "low_precision": "it is right only if it may compute with 10 bits inside",
    "constant_inputs": "some inputs were the same in every draw",
    "calls_differ": "equal calls sent the device different work",
    "keeps_state": "it keeps something from call to call, as a counter or a workspace would be",
    "first_calls_only": "its reference remembers calls; each was compared with a first one",
    "own_numbers_only": "the reference refused all floating numbers but the file's",
    "shared_memory": "its results share memory, with each other or with inputs, unlike the "
    "reference's",
    "own_parameters_only": "it fails once its parameters have changed in place",
    "has_fallback": "it computes the result without its kernels, where they raise or at long sizes",
    "untried_branches": "no draw took some branches of its host functions to a right result",
    "untried_grids": "no right draw had two programs along some axes of its kernels' grids",
    "smaller_sizes_only": "the file's own sizes were too much work; smaller ones were compared",
    "fewer_trials": "work or time ran out before the last draw, or before the tests after it",
    "races_unproved": "its blocks meet in memory, and it was judged on the GPU alone, where a race "
    "may pass",
    "torch_computes": "operators of PyTorch compute a part of it",
    "other_layout": "its results lie otherwise in memory than the reference's contiguous ones",
    "reads_values": "its host functions read values of tensors, and wait for the device to do so",
    "looks_around": "its host functions look at more than their arguments: types, files, addresses",
    "eval_mode_only": "it fails in training mode, where the reference does the same",
    "train_mode_only": "it is right in training mode, and not in eval mode",
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
