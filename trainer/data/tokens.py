"""The text as one long array of tokens.

--data PATH     a .bin file     uint16 tokens, mapped at the first use: opening takes the same time for every size
                a file          its bytes
                a folder        the bytes of its text files, in order of their paths
                nothing         Python's own sources: real text that is on any machine that can run this
"""

import mmap
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import open_input
from trainer.config import DataConfig

Text = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
TEXT_SUFFIXES = frozenset({".c", ".csv", ".h", ".html", ".js", ".json", ".md", ".py", ".rst", ".txt"})
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Installed packages lie in the folder of the standard library, and differ between machines."""
BYTE_VOCAB = 256
TOKEN_BYTES = 2


class TokenFile:
    """The tokens of a ``.bin`` file.

    The file is mapped when tokens are first read. A process that only passes this object on, such as a launcher, does
    not keep the file open. Tokens are not checked here: ``Batches`` checks those that it uses.
    """

    def __init__(self, path: Path) -> None:
        """Raises UsageError if the file is not an array of uint16, OSError if it cannot be opened."""
        self.path = path
        with open_input(path) as file:
            self._identity = _identity(file.fileno())
        if self._identity[-1] % TOKEN_BYTES:
            raise UsageError(f"{path} is not an array of uint16", hint="its size in bytes must be even")
        self._tokens: Text | None = None

    def __len__(self) -> int:
        return self._identity[-1] // TOKEN_BYTES

    def __getitem__(self, chosen: slice) -> Text:
        """A view of the chosen tokens.

        Raises:
            UnreadableError: the file cannot be read, or was replaced.
        """
        if self._tokens is None:
            try:
                self._tokens = self._mapped()
            except OSError as error:
                raise _unreadable(self.path, error) from error
        return self._tokens[chosen]

    def close(self) -> None:
        """Close the file. It is mapped again at the next use."""
        self._tokens = None

    def _mapped(self) -> Text:
        """Map the file. Few pages are used, in random order, so the kernel must not read ahead."""
        with open_input(self.path) as file:
            if _identity(file.fileno()) != self._identity:
                raise UnreadableError(
                    f"{self.path} was replaced, or its size changed, after the training started",
                    hint="start the training again. The data must not change while it runs",
                )
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        pages.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(pages, dtype="<u2")


Tokens = Text | TokenFile


def load_tokens(config: DataConfig, *, vocab_size: int) -> Tokens:
    """All tokens of the corpus, the same on every rank and in every run.

    Raises:
        UnreadableError: a file cannot be read.
        UsageError: there is no text, or the vocabulary does not hold the bytes of a text.
    """
    path = config.path or Path(sysconfig.get_path("stdlib"))
    try:
        tokens = TokenFile(path) if path.suffix == ".bin" else _bytes_of(path, config.max_bytes)
    except OSError as error:
        raise _unreadable(path, error) from error
    if not len(tokens):
        raise UsageError(f"no text in {path}", hint=f"a folder is searched for {', '.join(sorted(TEXT_SUFFIXES))}")
    if not isinstance(tokens, TokenFile) and vocab_size < BYTE_VOCAB:
        raise UsageError(
            f"token {BYTE_VOCAB - 1} in {path} is outside the vocabulary of {vocab_size}", hint="raise vocab_size"
        )
    return tokens


def _unreadable(path: Path, error: OSError) -> UnreadableError:
    return UnreadableError(f"cannot read {path}: {error}", hint="check the path and its permissions")


def _identity(descriptor: int) -> tuple[int, int, int]:
    """Device, inode and size of an open file."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_size


def _bytes_of(path: Path, max_bytes: int) -> Text:
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
    """The text files of a folder in order of their paths, without installed packages: those differ by machine.

    Unreadable folders are skipped. A folder is read when its first file is needed.
    """
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except PermissionError:
        return
    for entry in entries:
        path = folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in INSTALLED:
                yield from _text_files(path)
        elif path.suffix in TEXT_SUFFIXES and entry.is_file():
            yield path
