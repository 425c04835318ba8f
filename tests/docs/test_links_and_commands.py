"""Docs stay true: links lead somewhere, commands and options exist, and every command has a page."""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from tests.docs.pages import ROOT, anchors, pages, prose
from tests.each_case import each_case
from ui.cli import main
from ui.cli.main import COMMANDS, load_command

PAGES = pages()
MADE = {"docs/reference/cli/index.md", *(f"docs/reference/cli/{name}.md" for name in COMMANDS)}
"""Pages that ``scripts/docs_site.py`` makes."""
OWN_ARGUMENTS = ("agent",)
"""Commands that parse their options themselves."""


@each_case("page", PAGES)
def test_internal_links_lead_to_a_file_and_a_heading(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[page])):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        name = str(file.relative_to(ROOT))
        assert file.exists() or name in MADE, f"{page}: {target}"
        assert not anchor or anchor in anchors(PAGES[name]), f"{page}: {target}"


@each_case("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_commands_and_options_in_the_docs_exist(page: str) -> None:
    for words in commands_in(PAGES[page]):
        assert words[0] in COMMANDS or words[0].startswith("-"), f"{page}: rankscope {' '.join(words)}"
        if words[0] in COMMANDS and words[0] not in OWN_ARGUMENTS:
            ours = takewhile(lambda word: word != "--", words)  # the rest is a command of the user
            unknown = {word.partition("=")[0] for word in ours if word.startswith("--")} - options_of(words)
            assert not unknown, f"{page}: rankscope {' '.join(words)}: {unknown}"


def commands_in(text: str) -> Iterator[list[str]]:
    """The words after ``rankscope`` in each command: between backticks, and in lines of blocks of code."""
    joined = text.replace("\\\n", " ")
    found = re.findall(r"`rankscope +([a-z-][^`\n]*)`", joined)
    for block in re.findall(r"^ *```.*?^ *```$", joined, re.MULTILINE | re.DOTALL):
        found += re.findall(
            r"^ *(?:\$ )?(?:[A-Z_]+=\S+ +)*rankscope +([a-z-].*?)(?=  +[^- ]|  *#|$)", block, re.MULTILINE
        )
    return (command.split() for command in found if "-->" not in command)


def options_of(words: list[str]) -> set[str]:
    """Options of the command, or of its subcommand; with ``diagnose RUN``, those of ``diagnose run``."""
    command: Any = load_command(words[0])
    nested = getattr(command, "commands", None)
    if nested:
        name = words[1] if len(words) > 1 and words[1] in nested else "run"
        command = nested.get(name, command)
    return {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]} | {"--help"}


def test_the_readme_lists_the_exit_statuses_that_the_command_documents() -> None:
    table = PAGES["README.md"].partition("### Exit status")[2].partition("\n\n`")[0]
    listed = re.findall(r"^\| (\d+(?: \+ n)?) \|", table, re.MULTILINE)
    assert listed == re.findall(r"\s(\d+(?: \+ n)?) [a-z]", main.__doc__ or "")
