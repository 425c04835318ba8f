"""``docs/accuracy.md`` and ``docs/benchmarks.md``: each section is written by the command that it shows."""

import re
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ACCURACY = DOCS / "accuracy.md"
BENCHMARKS = DOCS / "benchmarks.md"


def write_section(title: str, command: str, text: str, page: Path = ACCURACY) -> None:
    """Replace the section ``title`` of a page, or add it at the end. Other sections do not change."""
    heading, *parts = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}
    sections[title] = f"## {title}\n\n`{command}`\n\n{text.strip()}\n"
    page.write_text("\n".join([f"{heading.rstrip()}\n", *sections.values()]))


def as_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
