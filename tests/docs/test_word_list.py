"""Plain words: what users read holds no word of the list, and uses the terms of the glossary."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.pages import ROOT, pages, prose
from ui.cli.main import COMMANDS, load_command

LISTED = [
    line.split(" -> ")
    for line in (ROOT / "tests" / "docs" / "word_list.txt").read_text().splitlines()
    if " -> " in line and not line.startswith("#")
]
SPARED = ("CHANGELOG",)
"""The changelog is a record of its time."""
PAGES = {page: text for page, text in pages().items() if not page.startswith(SPARED)}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_listed_word(page: str) -> None:
    assert not list(found(re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", prose(PAGES[page])))), page


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_no_listed_word(name: str) -> None:
    assert not list(found("\n".join(help_texts(name)))), f"rankscope {name} --help"


def found(text: str) -> Iterator[str]:
    """``told: write reported`` for each listed word, with the line that has it."""
    for line in text.splitlines():
        for word, instead in LISTED:
            if re.search(rf"\b(?:{word})\b", line, re.IGNORECASE):
                yield f"{word}: write {instead}: {line.strip()}"


def help_texts(name: str) -> Iterator[str]:
    """All texts of ``rankscope NAME --help`` and of its subcommands."""
    command: Any = load_command(name)
    yield COMMANDS[name].help
    for each in [command, *getattr(command, "commands", {}).values()]:
        yield each.help or ""
        yield from (parameter.help or "" for parameter in each.params)
