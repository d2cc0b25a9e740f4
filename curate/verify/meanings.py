"""What codes in a verdict mean, in words: the caveats, and the families of inputs."""

from __future__ import annotations

CAVEATS = {
    "own_sizes_only": "it raised on other sizes of inputs",
    "some_sizes_only": "it is wrong, or raises, at other sizes that the reference takes",
    "own_ranks_only": "it is wrong, or raises, on inputs with one dimension more",
    "own_arguments_only": "it is wrong, or raises, with other numbers for its constructor or for "
    "forward, or with an optional argument",
    "own_integers_only": "it is wrong, or raises, on integers that the file does not draw: below "
    "zero, or five times as large",
    "usual_numbers_only": "it is wrong, or raises, on numbers from 2**-140 to 2**40",
    "finite_only": "on inputs with NaN and infinities it is wrong, or raises, or had no time left",
    "contiguous_only": "it is wrong, or raises, on inputs with another memory layout: with gaps, "
    "channels last, transposed",
    "absolute_accuracy": "on small inputs it is only as close as on inputs of the usual size",
    "low_precision": "it is right only if it may compute with 10 bits inside",
    "constant_inputs": "some inputs were the same in every draw",
    "calls_differ": "equal calls sent the device different work, without a visible reason",
    "keeps_state": "it writes to memory that outlives the call, as a counter would be",
    "first_calls_only": "its reference keeps something from call to call beside its state, so that "
    "each call was compared as a first one",
    "own_numbers_only": "the reference refused all floating numbers but those of the file",
    "shared_memory": "two of its results, or one and an input, lie in the same memory, and the "
    "reference's do not: who writes to one changes the other",
    "own_parameters_only": "it is wrong, or raises, once its parameters have changed in place, as "
    "training changes them",
    "has_fallback": "it computes the result without its kernels, where they raise or at long sizes",
    "untried_branches": "no draw took some branches of its host functions to a right result",
    "untried_grids": "no right draw had two programs along some axes of its kernels' grids",
    "smaller_sizes_only": "the file's own sizes were too much work; smaller ones were compared",
    "fewer_trials": "work or time ran out before the last draw, or before the tests after it",
    "races_unproved": "its blocks meet in memory; it is right on the GPU, and could not be judged "
    "on the CPU, where every race is seen",
    "eval_mode_only": "it is wrong, or raises, in training mode, where the reference does the same",
    "train_mode_only": "it is right in training mode, and not in eval mode",
}
"""What each caveat of a `curate.verify.verdict.Verdict` says."""

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
