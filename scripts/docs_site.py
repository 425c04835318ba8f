"""Hooks of MkDocs for pages that are not files of ``docs/``, and for links to files outside ``docs/``.

    COMMANDS --command_pages--> reference/cli/<command>.md      one page for each command, its subcommands included
    CONTRIBUTING.md, CHANGELOG.md ----> contributing.md, changelog.md

MkDocs loads this file (``hooks`` in mkdocs.yml). Tests call ``command_pages``.
"""

import posixpath
import re
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from telemetry.agent.settings import follow
from ui.cli.main import COMMANDS, load_command

FOLDER = "reference/cli"
ENTRY = "rankscope"
ROOT = Path(__file__).parents[1]
FROM_ROOT = {"../CONTRIBUTING.md": "contributing.md", "../CHANGELOG.md": "changelog.md"}
"""Files outside ``docs/`` that the site shows: path relative to ``docs/`` -> page."""
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)[^)]*\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not files of ``docs/``."""
    for path, text in {**command_pages(), **_pages_from_root()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Replace links to files that the site does not have by their text."""
    name = page.file.src_uri

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link[2]))
        if target in FROM_ROOT:
            return f"[{link[1]}]({posixpath.relpath(FROM_ROOT[target], posixpath.dirname(name))})"
        return link[1] if target.startswith("..") else link[0]

    return _LINK.sub(replaced, markdown)


def _pages_from_root() -> dict[str, str]:
    sources = {page: (ROOT / "docs" / path).read_text() for path, page in FROM_ROOT.items()}
    return {page: text.replace("](docs/", "](") for page, text in sources.items()}


def command_pages() -> dict[str, str]:
    """Page -> its Markdown, e.g. of ``reference/cli/diagnose.md``. Every command has a page."""
    pages = {f"{FOLDER}/{name}.md": _page(name) for name in COMMANDS}
    lines = [f"| [`{ENTRY} {name}`]({name}.md) | {command.help} |" for name, command in COMMANDS.items()]
    pages[f"{FOLDER}/index.md"] = "\n".join(["# Commands", "", "| command | does |", "|---|---|", *lines, ""])
    return pages


def subcommands(name: str) -> dict[str, Any]:
    """Path, such as ``diagnose hang``, -> command, for each subcommand of ``name``. Without any: the command itself."""
    command = load_command(name)
    nested = getattr(command, "commands", None)
    return {f"{name} {child}": each for child, each in nested.items()} if nested else {name: command}


def _page(name: str) -> str:
    sections = [section for path, command in subcommands(name).items() for section in _section(path, command)]
    return "\n".join([f"# {ENTRY} {name}", "", COMMANDS[name].help, "", *sections])


def _section(path: str, command: Any) -> Iterator[str]:
    if " " in path:
        yield from (f"## {ENTRY} {path}", "")
    if path == "agent":  # it reads its arguments itself
        yield from ("```", _agent_help().strip(), "```", "")
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join([ENTRY, path, *map(_argument, arguments), "[OPTIONS]"])
    yield from ("```", usage, "```", "", _paragraphs(command.help or ""), "")
    if arguments:
        yield from (
            "| argument | |",
            "|---|---|",
            *(f"| `{_argument(each)}` | {_cell(each)} |" for each in arguments),
            "",
        )
    if options:
        rows = (f"| {_names(each)} | {_default(each)} | {_cell(each)} |" for each in options)
        yield from ("| option | default | |", "|---|---|---|", *rows, "")


def _agent_help() -> str:
    text = StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        follow(f"{ENTRY} agent", ["--help"])
    return text.getvalue()


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or callable(value) or value == ():
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _cell(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split()).replace("|", "\\|").replace("<", "&lt;")
    variable = parameter.envvar
    return f"{text} Environment: `{variable}`." if variable else text


def _paragraphs(text: str) -> str:
    return text.replace("\b\n", "").strip()
