"""Output of every command: control characters in text from outside are escaped."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from telemetry.printable import printable, printable_lines


class Terminal(Console):
    """A console that writes out what is not printable, in whatever it is given; colours are its own.

    JSON keeps to ASCII: its escapes are exact, so a reader gets the original characters.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable_lines(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style, segment.control)

    def print_json(self, json: str | None = None, **options: Any) -> None:
        super().print_json(json, **{"ensure_ascii": True, **options})


def line(text: str, style: str = "") -> Text:
    """One line: a line end in a name does not begin another."""
    return Text(printable(text), style=style)
