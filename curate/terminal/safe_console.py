"""A console that shows other people's text without obeying it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from curate.terminal.shown import visible


class SafeConsole(Console):
    """Shows control characters of what it prints as escapes (`visible`), and its own as they are.

    Text is escaped before it is laid out, so that it has the room that it takes; what other
    renderables yield is escaped when they are rendered.
    """

    def render_str(self, text: str, **form: Any) -> Text:
        return super().render_str(visible(text), **form)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
