"""Plain words: texts for users contain no word of the list, and use the terms of the glossary."""

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.pages import ROOT, pages, prose
from tests.each_case import each_case
from ui.cli.main import COMMANDS, load_command

LISTED = [
    line.split(" -> ")
    for line in (ROOT / "tests" / "docs" / "word_list.txt").read_text().splitlines()
    if " -> " in line and not line.startswith("#")
]
ANY_LISTED = re.compile(rf"\b(?:{'|'.join(f'(?:{word})' for word, _ in LISTED)})\b")
"""For text in lower case. A search that ignores case takes several times as long."""
JOINTS = re.compile(r"""["']\s*\w*["']""")
"""Between two parts of a string."""
SPARED = ("CHANGELOG",)
"""Old entries of the changelog keep their words."""
PAGES = {page: text for page, text in pages().items() if not page.startswith(SPARED)}


@each_case("page", PAGES)
def test_a_page_has_no_listed_word(page: str) -> None:
    assert not list(found(re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", prose(PAGES[page])))), page


@each_case("name", COMMANDS)
def test_the_help_of_a_command_has_no_listed_word(name: str) -> None:
    assert not list(found("\n".join(help_texts(name)))), f"rankscope {name} --help"


@pytest.mark.parametrize("package", ["rankscope", "telemetry", "trainer", "diagnose", "ui"])
def test_the_messages_of_a_package_have_no_listed_word(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        source = path.read_text()
        if ANY_LISTED.search(JOINTS.sub("", source).lower()):  # parsing all files takes much longer
            assert not list(found("\n".join(messages_in(source)))), path


def test_the_files_of_a_deployment_have_no_listed_word() -> None:
    files = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    for path in [*files, *ROOT.glob("*.yml")]:
        assert not list(found(path.read_text())), path


def found(text: str) -> Iterator[str]:
    """``told: write reported`` for each listed word, with the line that has it."""
    for line in (line for line in text.splitlines() if ANY_LISTED.search(line.lower())):
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


def messages_in(source: str) -> Iterator[str]:
    """Texts of a module that people may read: strings of two words or more, without docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield from [node.value] if isinstance(node.value, str) and " " in node.value.strip() else []
