"""The text as one long array of tokens.

--data PATH     a .bin file     uint16 tokens, mapped, never read whole
                a file          its bytes
                a folder        the bytes of its text files, in order of their paths
                nothing         Python's own sources: real text that is on any machine that can run this
"""

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import open_input
from trainer.config import DataConfig

Tokens = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
TEXT_SUFFIXES = frozenset({".c", ".csv", ".h", ".html", ".js", ".json", ".md", ".py", ".rst", ".txt"})
BYTE_VOCAB = 256


def load_tokens(config: DataConfig, *, vocab_size: int) -> Tokens:
    """All tokens of the corpus, the same on every rank and in every run.

    Raises:
        UnreadableError: a file cannot be read.
        UsageError: there is no text, or a token that the vocabulary does not hold.
    """
    path = config.path or Path(sysconfig.get_path("stdlib"))
    try:
        tokens = _mapped(path) if path.suffix == ".bin" else _bytes_of(path, config.max_bytes)
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error}", hint="check the path and its permissions") from error
    if not len(tokens):
        raise UsageError(f"no text in {path}", hint=f"a folder is searched for {', '.join(sorted(TEXT_SUFFIXES))}")
    largest = int(tokens.max()) if path.suffix == ".bin" else BYTE_VOCAB - 1
    if largest >= vocab_size:
        raise UsageError(
            f"token {largest} in {path} is outside the vocabulary of {vocab_size}", hint="raise vocab_size"
        )
    return tokens


def _mapped(path: Path) -> Tokens:
    with open_input(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes % 2:
            raise UsageError(f"{path} is not an array of uint16", hint="its size in bytes must be even")
        if not size_bytes:
            return np.empty(0, dtype="<u2")
        return np.memmap(file, dtype="<u2", mode="r")


def _bytes_of(path: Path, max_bytes: int) -> Tokens:
    files = [path] if path.is_file() else _text_files(path)
    pieces, left = [], max_bytes
    for file in files:
        if left <= 0:
            break
        with open_input(file) as source:
            pieces.append(source.read(left))
        left -= len(pieces[-1])
    return np.frombuffer(b"\n".join(pieces), dtype=np.uint8)


def _text_files(folder: Path) -> Iterator[Path]:
    """In order of their paths. Installed packages lie under the standard library's folder and differ by machine."""
    for file in sorted(folder.rglob("*"), key=lambda file: file.relative_to(folder).parts):
        installed = {"site-packages", "dist-packages"}.intersection(file.relative_to(folder).parts)
        if file.suffix in TEXT_SUFFIXES and not installed and file.is_file():
            yield file
