"""A language model that answers by a script, and programs for it to answer with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from curate.generate.sampling import Message, Progress, Sample, Sampling, Stream
from curate.problem.problem import EXAMPLE
from curate.teacher.template import fence
from curate.verify import Options

OPTIONS = Options(backend="cpu", trials=2, workers=1, vary_sizes=False)
REFERENCE, RIGHT = EXAMPLE
WRONG = RIGHT.replace("x + 1, mask", "x + 1.5, mask")
NEARLY = RIGHT.replace("x + 1, mask", "x + tl.where(offsets == 7, 2, 1), mask")
BROKEN = RIGHT.replace("tl.constexpr):", "tl.constexpr:")
CHEAT = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""


class Scripted:
    """A model that answers by a script: the n-th conversation of a round with its n-th line."""

    name = "scripted"

    def __init__(self, *rounds: Sequence[str]) -> None:
        self.rounds = [list(answers) for answers in rounds]
        self.asked: list[list[list[Message]]] = []
        self.seeds: list[int] = []

    def sample(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        progress: Progress = lambda index, samples: None,
        each: Callable[[], None] = lambda: None,
    ) -> list[list[Sample]]:
        self.asked.append([list(talk) for talk in conversations])
        self.seeds.append(sampling.seed)
        answers = self.rounds[0]
        found = []
        for index in range(len(conversations)):
            samples = []
            for _ in range(sampling.n):
                samples.append(Sample(answers.pop(0), "stop"))
                each()
            progress(index, samples)
            found.append(samples)
        if not answers:
            self.rounds.pop(0)
        return found

    def stream(self, conversation: Sequence[Message], sampling: Sampling) -> Stream:
        ((sample,),) = self.sample([conversation], sampling)
        yield sample.text[:10]
        yield sample.text[10:]
        return sample


def programs(*texts: str) -> list[str]:
    return [f"Here it is:\n\n{fence(text)}" for text in texts]
