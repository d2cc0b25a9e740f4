"""`curate train`: one function for both methods."""

from __future__ import annotations

from curate.train.options import TrainOptions
from curate.train.training import Say, Trained


def train(options: TrainOptions, say: Say = print) -> Trained:
    """Train a model by the options' method, and save it; go on where an earlier call stopped.

    Args:
        options: what to train, on what, and how.
        say: is given lines that tell what happens.

    Raises:
        ModelError: the model cannot be had, or its training does not fit into memory.
        InputError: the data set is missing or has nothing to train on, or the folder is taken.
        CannotJudge: with method ``grpo``: the judge cannot start here, or cannot go on.
    """
    if options.method == "grpo":
        from curate.train.grpo import train_grpo

        return train_grpo(options, say=say)
    from curate.train.sft import train_sft

    return train_sft(options, say=say)
