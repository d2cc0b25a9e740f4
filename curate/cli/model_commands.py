"""The commands ``curate train``, ``curate eval`` and ``curate generate``.

They stand apart from `curate.cli.main` because they also run on a GPU node that has torch,
transformers, TRL and click, and nothing else of `curate`'s: ``python -m curate.train train …``.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from curate.cli.options import judge_options, make_options, options_of
from curate.files import InputError
from curate.generate.models import ModelError, need
from curate.generate.sampling import ENGINES
from curate.terminal.shown import say
from curate.train.grpo import GrpoOptions, train_grpo
from curate.train.options import TrainOptions
from curate.train.presets import PRESETS, with_preset
from curate.verify import CannotJudge, Options

USER_ERRORS = (ModelError, InputError, CannotJudge)
"""Errors of these commands that a user can mend."""

GRPO_ONLY = {field.name for field in dataclasses.fields(GrpoOptions)}


@click.command()
@click.argument("dataset")
@click.option(
    "--model",
    required=True,
    metavar="PATH",
    help="Model to start from: a folder, a GGUF file or a name on the Hub.",
)
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the trained model, its checkpoints and training.json.",
)
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="default",
    show_default=True,
    help="Settings that go together; options that you give take precedence.",
)
@options_of(TrainOptions)
@options_of(GrpoOptions)
@click.pass_context
def train(ctx: click.Context, /, preset: str, **given: Any) -> None:
    """Train a model on DATASET and keep the checkpoint with the lowest validation loss.

    DATASET is a folder that `curate run` wrote, a recipe, a data set on the Hub, or a .jsonl or
    .parquet file of rows. Loss is computed on the answers only. With --method grpo, the model
    learns from the verdicts of `curate verify` on its own answers. The same command goes on where
    it stopped. On several GPUs: accelerate launch -m curate.train train DATASET ….
    """
    from curate.train.train import train as run

    need("accelerate", "datasets", "peft", "psutil", "transformers", "trl")
    _quieten()
    explicit = {
        name: value
        for name, value in given.items()
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    by_reward = {name: explicit.pop(name) for name in GRPO_ONLY & explicit.keys()}
    try:
        options = TrainOptions(**with_preset(preset, explicit))
        grpo = GrpoOptions(**by_reward)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if options.method == "grpo":
        train_grpo(options, grpo, say)
    elif by_reward:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(by_reward))
        raise click.UsageError(f"{names}: for --method grpo only")
    else:
        run(options, say)


def _quieten() -> None:
    """Keep off stderr what says nothing of this training: other libraries' bars and advice."""
    # TRL 1.16 uses names of transformers that are deprecated since 5.18.
    warnings.filterwarnings("ignore", ".*gradient_checkpointing.* is deprecated", FutureWarning)
    # peft looks for the configuration of a base that is a GGUF file, and goes on without it.
    warnings.filterwarnings("ignore", "Could not find a config file in .*gguf", UserWarning)
    if not sys.stderr.isatty():
        os.environ["TQDM_DISABLE"] = "1"  # read when tqdm is imported
    import datasets
    import transformers

    transformers.utils.logging.disable_progress_bar()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()


SAMPLING_OPTIONS = (
    click.option(
        "--endpoint",
        metavar="URL",
        help="OpenAI-compatible server to ask; the key comes from OPENAI_API_KEY.",
    ),
    click.option(
        "--temperature",
        type=click.FloatRange(min=0),
        default=1.0,
        show_default=True,
        help="Sampling temperature; 0 always takes the most likely token.",
    ),
    click.option(
        "--top-p",
        type=click.FloatRange(min=0, max=1, min_open=True),
        default=0.97,
        show_default=True,
        help="Sample from the most likely tokens whose probabilities add up to this.",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=4096,
        show_default=True,
        metavar="N",
        help="Most tokens per answer.",
    ),
    click.option("--seed", default=0, show_default=True, help="Seed for sampling."),
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="auto",
        show_default=True,
        help="What runs a local model: auto takes vLLM if it is installed, else transformers.",
    ),
)


def sampling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how a model is asked."""
    for add in reversed(SAMPLING_OPTIONS):
        command = add(command)
    return command


def running_options(given: dict[str, Any]) -> Options:
    """Return the judge's options of a command that has to know what is right.

    Raises:
        click.UsageError: a value is not allowed, or the backend runs nothing.
    """
    options = make_options(Options, given)
    if options.backend == "compile":
        raise click.UsageError(
            "--backend compile runs nothing, so it cannot tell what is correct; use --targets to "
            "compile alongside another backend"
        )
    return options


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--model",
    metavar="PATH",
    help="Model to ask: a folder, a GGUF file or a name on the Hub; with --endpoint, its name on "
    "that server.",
)
@click.option(
    "-k",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Answers to ask for at a time; with 1, the answer is shown while it is written.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Most times to ask. From the second round on, each answer comes back with what the judge "
    "found, until a program is correct and, with --timing, faster than PyTorch.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE.py",
    help="Where to write the program; by default stdout.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE.jsonl",
    help="Append every judged answer, with its conversation and verdict, to this file.",
)
@sampling_options
@judge_options
def generate(
    file: Path | None,
    model: str | None,
    endpoint: str | None,
    k: int,
    rounds: int,
    output: Path | None,
    trace: Path | None,
    temperature: float,
    top_p: float,
    max_tokens: int,
    seed: int,
    engine: str,
    **given: Any,
) -> None:
    """Write a Triton program for the PyTorch module in FILE and prove it correct.

    FILE defines Model, get_inputs and get_init_inputs. A model is asked for K programs, which the
    judge of `curate verify` judges. The first correct program (with --timing, the fastest) goes to
    stdout, everything else to stderr. Without FILE, paste modules into the terminal.

    Exit status: 1 if no program is correct, 2 if something is wrong with FILE or the options, or
    the judge cannot work on this machine.
    """
    from curate.generate.console import GenerateJob, read_module, write_program
    from curate.generate.sampling import Sampling, make_sampler
    from curate.generate.trace import TraceFile

    options = running_options(given)
    if not (model or endpoint):
        raise click.UsageError("say which model to ask: --model PATH or --endpoint URL")
    if file is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("say which FILE; modules can be pasted in a terminal only")
    code = read_module(file) if file else None
    if trace:
        TraceFile(trace).close()  # what is there already is looked at before a model is loaded
    if output and file is None:
        raise click.UsageError("--output is for FILE; in the terminal :save writes a program")
    if output and not output.parent.is_dir():
        raise click.UsageError(f"--output {output.parent}: there is no such folder")
    drawn = Sampling(k, temperature, top_p, max_tokens, seed)
    job = GenerateJob(make_sampler(model, endpoint, engine), options, drawn, trace)
    if code is None:
        from curate.generate.repl import Repl

        Repl(job.run, k, rounds).run()
        return
    try:
        generated = job.run(code, k, rounds)
    except KeyboardInterrupt:
        kept = f"; what was judged is in {trace}" if trace else ""
        say(f"\ncurate: interrupted{kept}", err=True)
        sys.exit(130)
    if generated.program is None:
        sys.exit(1)
    write_program(generated.program, output)


def parse_levels(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Return the numbers of ``1,2``."""
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 1,2")
    return tuple(map(int, parts))


@click.command("eval")
@click.option(
    "--bench",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Problems: a checkout of KernelBench, another folder of .py files in its form, a .jsonl "
    "or .parquet file with id and reference, or a data set that `curate run` wrote with the format "
    "pairs.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[LABEL=]PATH",
    help="Model to evaluate: a folder, a GGUF file or a name on the Hub; with --endpoint, its name "
    "on that server. Repeat it for more models; the first is the baseline.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for answers, verdicts and results. Models from earlier commands with the same "
    "settings are shown alongside the new ones.",
)
@click.option(
    "--levels",
    default="",
    callback=parse_levels,
    metavar="N,N",
    help="Levels of KernelBench, such as 1,2; all by default.",
)
@click.option(
    "--split",
    default="test",
    show_default=True,
    help="Split of a data set of `curate run`.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Take only N problems, chosen by the seed.",
)
@click.option(
    "-n",
    "--samples",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Answers per problem; pass@k needs at least k.",
)
@sampling_options
@judge_options
def evaluate(
    bench: Path,
    models: tuple[str, ...],
    endpoint: str | None,
    output: Path,
    levels: tuple[int, ...],
    split: str,
    limit: int | None,
    samples: int,
    temperature: float,
    top_p: float,
    max_tokens: int,
    seed: int,
    engine: str,
    **given: Any,
) -> None:
    """Measure how well models write Triton: compile rate, correct rate, pass@k, fast_p.

    Each model writes -n programs per problem, and the judge of `curate verify` runs them.
    Intervals are 95 % bootstrap intervals over problems, and so are those of the difference
    between two models. Problems whose reference the judge cannot use are left out and counted.

    \b
      curate eval --bench KernelBench --levels 1,2 --output eval \\
          --model base=SmolLM2 --model tuned=out/model --timing

    The same command goes on where it stopped. The output folder gets results.json, results.md,
    results.svg, and the answers and verdicts of each model.
    """
    from curate.evaluate.evaluate import Contestant
    from curate.evaluate.evaluate import evaluate as run
    from curate.evaluate.live import LiveEvaluation
    from curate.evaluate.problems import read_problems
    from curate.evaluate.results import tables
    from curate.generate.sampling import Sampling
    from curate.terminal.safe_console import SafeConsole

    options = running_options(given)
    no_name = ("",) if endpoint else ()  # the only model at the endpoint, or those in OUTPUT
    contestants = [Contestant.parse(text, endpoint, engine) for text in models or no_name]
    problems = read_problems(bench, levels=levels, split=split, limit=limit, seed=seed)
    sampling = Sampling(samples, temperature, top_p, max_tokens, seed)
    with LiveEvaluation() as live:
        values = run(contestants, problems, output, sampling, options, live)
    SafeConsole(highlight=False).print(tables(values))
    say(f"{output / 'results.md'}")
