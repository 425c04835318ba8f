"""A file that gets its name only when it is complete."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from telemetry.errors import UsageError

PACKING = 5
"""Level of compression, from 1 to 9. Higher levels take more time than they save."""
BUFFER_BYTES = 1 << 20


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write. It is compressed with gzip if its name ends in ``.gz``.

    It gets its name when the block ends, and replaces an existing file. If the block raises, or the disk is full,
    nothing is changed.

    Raises:
        UsageError: the file cannot be written.
    """
    if path.exists() and not path.is_file():  # a device would be replaced by a file
        raise UsageError(f"{path} is not a regular file", hint="use --out with a file")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        with _opened(part) as raw, _packed(raw, packs=path.suffix == ".gz") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", hint="use --out with a file in an existing folder, on a disk with enough space"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def _opened(part: Path) -> Iterator[BinaryIO]:
    """The open file. It is closed at the end of the block. If no error occurred, its data is on the disk then."""
    raw = part.open("xb", buffering=BUFFER_BYTES)
    try:
        yield raw
        raw.flush()
        os.fsync(raw.fileno())
    except BaseException:
        with suppress(OSError):  # closing writes the buffered data, which fails again
            raw.close()
        raise
    raw.close()


@contextmanager
def _packed(raw: BinaryIO, *, packs: bool) -> Iterator[BinaryIO]:
    if not packs:
        yield raw
        return
    file = gzip.GzipFile(filename="", mode="wb", compresslevel=PACKING, fileobj=raw, mtime=0)
    try:
        yield cast(BinaryIO, file)
    except BaseException:
        with suppress(OSError):
            file.close()
        raise
    file.close()
