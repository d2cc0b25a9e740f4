"""A terminal in which PyTorch modules are pasted and Triton programs come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from curate.files import InputError
from curate.generate.generate import Generation
from curate.generate.models import ModelError
from curate.terminal.shown import say, say_program

HELP = """\
Paste a PyTorch module (Model, get_inputs, get_init_inputs), and end it with a line that holds only
a dot, or with Ctrl-D. At the start of a line:

  :k N         ask for N answers at a time
  :rounds N    ask N times, with the judge's evidence on the answers before
  :save FILE   write the last right program to a file
  :help        show this
  :quit        leave; Ctrl-D does too"""

FIRST, MORE = ">>> ", "... "


class Repl:
    """Reads modules and commands until it is left.

    Args:
        generate: asks for a program, given a module, k and rounds, and tells how it goes.
        k: answers to ask for at a time.
        rounds: how often to ask.
    """

    def __init__(
        self, generate: Callable[[str, int, int], Generation], k: int, rounds: int
    ) -> None:
        self.generate, self.k, self.rounds = generate, k, rounds
        self.program: str | None = None
        self.commands: dict[str, Callable[[str], None]] = {
            ":k": self._set_k,
            ":rounds": self._set_rounds,
            ":save": self._save,
            ":help": lambda word: say(HELP),
        }

    def run(self) -> None:
        """Talk until the user leaves."""
        import readline  # noqa: F401  # it gives input() a history and keys to edit with

        say(HELP)
        while (text := self._read()) is not None:
            if text.startswith(":"):
                if text.strip() == ":quit":
                    return
                self._command(*text.strip().partition(" ")[::2])
            elif text.strip():
                self._answer(text)

    def _read(self) -> str | None:
        """Return a command or a module; None when the user leaves, and "" after Ctrl-C."""
        lines: list[str] = []
        while True:
            try:
                line = input(MORE if lines else FIRST)
            except EOFError:
                say()
                return "\n".join(lines) + "\n" if lines else None
            except KeyboardInterrupt:
                say()
                return ""
            if line.strip() == ".":
                return "\n".join(lines) + "\n"
            if not lines and line.startswith(":"):
                return line
            if lines or line.strip():
                lines.append(line)

    def _answer(self, code: str) -> None:
        try:
            generated = self.generate(code, self.k, self.rounds)
        except (InputError, ModelError) as error:
            say(str(error))
        except KeyboardInterrupt:
            say("\ninterrupted")
        else:
            if generated.program:
                self.program = generated.program
                say_program(generated.program)

    def _command(self, name: str, word: str) -> None:
        if name in self.commands:
            self.commands[name](word.strip())
        else:
            say(f"there is no {name}\n{HELP}")

    def _set_k(self, word: str) -> None:
        self.k = self._number(word, self.k)
        say(f"k = {self.k}")

    def _set_rounds(self, word: str) -> None:
        self.rounds = self._number(word, self.rounds)
        say(f"rounds = {self.rounds}")

    def _number(self, word: str, now: int) -> int:
        if word.isdecimal() and int(word) > 0:
            return int(word)
        if word:
            say(f"'{word}' is no number from 1 on")
        return now

    def _save(self, word: str) -> None:
        if not word or self.program is None:
            say(":save FILE writes the last right program" if not word else "there is none yet")
            return
        try:
            Path(word).write_text(self.program, encoding="utf-8")
        except OSError as error:
            say(f"{word}: cannot be written: {error}")
        else:
            say(f"written to {word}")
