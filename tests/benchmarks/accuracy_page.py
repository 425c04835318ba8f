"""``docs/accuracy.md``: how often verdicts are right. Each section is written by the command that it shows."""

import re
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
HEADING = """# Accuracy

How often a verdict names exactly the ranks that were broken, all of them and no other. Each section is written by the
command in it.
"""


def write_section(title: str, command: str, text: str, page: Path = PAGE) -> None:
    """Put the section called ``title`` in place of the one that is there, or at the end."""
    sections = _sections(page.read_text()) if page.exists() else {}
    sections[title] = f"## {title}\n\n`{command}`\n\n{text.strip()}\n"
    page.write_text("\n".join([HEADING, *sections.values()]))


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


def as_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
