"""Reads text files of other tools: JSON documents, lines of JSON, and plain lines. Each may be packed with gzip.

    path --open--> bytes --unpacked, within a limit--> document | objects, one a line | lines

A process that was killed leaves an incomplete last line. That line is left out.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import open_input

MAX_BYTES = 2**30
"""Largest unpacked size of a file. To parse a document needs about six times as much memory."""
MAX_FILES = 2**17
GZIP = b"\x1f\x8b"
_DIGITS = re.compile(r"(\d+)")


def find_inputs(paths: Sequence[Path], suffixes: Sequence[str], what: str) -> list[Path]:
    """The files in ``paths``. For a folder, the files in it that end in one of ``suffixes``, in the order of the
    numbers in their names: ``host2`` before ``host10``.

    Raises:
        UsageError: there is no file, a folder has no such file, or a file is given twice.
    """
    files = [file for path in paths for file in (_in_folder(path, suffixes, what) if path.is_dir() else [path])]
    if len({file.resolve() for file in files}) < len(files):
        raise UsageError("a file is given twice", hint="give each file, or the folder, once")
    if not files:
        raise UsageError("no path is given", hint=f"give {what}")
    if len(files) > MAX_FILES:
        raise UsageError(f"{len(files)} files", hint=f"at most {MAX_FILES} are supported")
    return files


def _in_folder(folder: Path, suffixes: Sequence[str], what: str) -> list[Path]:
    files = (path for path in folder.iterdir() if path.name.endswith(tuple(suffixes)) and path.is_file())
    found = sorted(files, key=_with_numbers)
    if not found:
        raise UsageError(
            f"{folder} has no {' or '.join(filter(None, suffixes)) or 'file'}", hint=f"give {what}, or their folder"
        )
    return found


def _with_numbers(path: Path) -> list[str | int]:
    return [int(part) if at % 2 else part for at, part in enumerate(_DIGITS.split(path.name))]


def content_of(path: Path, hint: str, max_bytes: int | None = None) -> bytes:
    """The unpacked bytes of a file. A packed file of some megabytes can unpack to more than any memory holds.

    Args:
        max_bytes: largest unpacked size. If None, ``MAX_BYTES`` is used.

    Raises:
        UsageError: it cannot be opened.
        UnreadableError: it is damaged, or larger than ``max_bytes``.
    """
    most = MAX_BYTES if max_bytes is None else max_bytes
    try:
        with open_input(path) as file:
            packed = file.peek(len(GZIP)).startswith(GZIP)
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(most + 1)
    except gzip.BadGzipFile as error:
        raise UnreadableError(f"{path} is damaged: {error}", hint="copy the file again") from error
    except (EOFError, zlib.error) as error:
        raise UnreadableError(f"{path} is damaged: {error}", hint="copy the file again") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint=hint) from error
    if len(content) > most:
        longest = f"{most / 2**30:g} GiB" if most >= 2**30 else f"{most / 2**20:g} MiB"
        raise UnreadableError(f"the text of {path} is longer than {longest}", hint="record fewer steps into one file")
    return content


def document_of(path: Path, hint: str, max_bytes: int | None = None) -> Any:
    """The JSON document in a file.

    Raises:
        UsageError, UnreadableError: as :func:`content_of`, or it is not JSON.
    """
    try:
        return json.loads(content_of(path, hint, max_bytes))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path} is not complete JSON: {str(error)[:200]}", hint=hint) from error


def lines_of(path: Path, hint: str) -> list[str]:
    """The lines of a text file.

    Raises:
        UsageError, UnreadableError: as :func:`content_of`, or it is not UTF-8.
    """
    try:
        return content_of(path, hint).decode().split("\n")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path} is not UTF-8 text: {error}"[:300], hint=hint) from error


def objects_of(path: Path, hint: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects in a file of JSON lines, each with the number of its line from 1. Empty lines are skipped.

    Raises:
        UsageError, UnreadableError: as :func:`lines_of`, or a line before the last is not a JSON object.
    """
    lines = lines_of(path, hint)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) and number > 1:
                return  # its writer was killed
            raise UnreadableError(f"{path}, line {number}: {str(error)[:200]}", hint=hint) from error
        if not isinstance(found, dict):
            raise UnreadableError(f"{path}, line {number} is not a JSON object", hint=hint)
        yield number, found


def text(value: Any, *, most: int = 256) -> str:
    """A text that can be stored: at most ``most`` characters, without broken surrogates. Empty for another type."""
    return value[:most].encode(errors="replace").decode() if isinstance(value, str) else ""
