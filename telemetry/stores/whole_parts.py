"""Checks the folder of an embedded store: free space, owner and other processes, then the parts.

A part must be complete on disk. Torn parts are moved away.

If the disk becomes full while the engine writes the last buffer of a file, it continues without an error (seen in chdb
3.7 and 4.4: ``write`` returns ENOSPC, and ``rename`` follows). The part counts as stored, or as the merge of others,
until it is read. After a restart the engine may treat it as empty and delete the parts that were merged into it. So
the files are checked here:

    store/963/963f611e-.../202611_2_25_9/   a part: checksums.txt lists its files and their sizes
                                            and those of each projection, a part within the part
                          /detached/        what the engine does not load

Merged parts stay on disk for eight minutes (``old_parts_lifetime`` in ``schema/0010_merged_parts.sql``), or as long as
the engine is closed. After the torn part is moved away, the engine uses them again.
"""

import fcntl
import io
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from telemetry.errors import UnreachableError, UnsafeFolderError, UsageError
from telemetry.files.private_files import check_own, make_folder

LEAST_FREE_BYTES = 8 * 2**20
"""Space to create tables. On a full disk the engine writes an empty definition and can never open the folder again."""


def check_room(folder: Path) -> None:
    """Raise UnreachableError if the disk has too little free space to open a store."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < LEAST_FREE_BYTES:
        raise UnreachableError(
            f"{folder}: the disk has {free_bytes / 2**20:.0f} MiB left, not enough to open a store",
            hint=f"free {LEAST_FREE_BYTES / 2**20:.0f} MiB, then restart the collector; agents wait for it",
        )


def check_free(folder: Path) -> None:
    """Raise an error that names the likely owner of the folder. The engine's own message is long and unclear."""
    try:
        with make_folder(folder) as opened:
            opened.tighten()
            check_own(folder, os.fstat(opened.descriptor))  # the engine follows any link in it
            with os.fdopen(opened.open("status", os.O_RDWR | os.O_CREAT), "rb") as status:
                fcntl.flock(status, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UnreachableError(
            f"embedded store {folder} is open in another process",
            hint="use the collector that holds it, e.g. --store http://127.0.0.1:8719, or stop that process first",
        ) from None
    except UnsafeFolderError as error:
        raise UsageError(
            f"embedded store: {error.message}",
            hint="run as the folder's owner, or use your own folder: embedded:DIR",
        ) from None
    except OSError as error:
        raise UsageError(
            f"embedded store {folder}: {error.strerror}", hint="use a writable folder: embedded:DIR"
        ) from error
    if "?" in str(folder):
        raise UsageError(f"embedded store {folder}: the path contains '?'", hint="use a folder without '?' in its path")


TABLES = "store/*/*/"
"""Pattern of the folders of tables within the folder of a store."""
PART = re.compile(r"[^_]+_\d+_\d+_\d+(_\d+)?")
"""Name of a part. A folder that is not yet a part, or no longer one, has a prefix such as ``tmp_``."""
UNLISTED = ("columns.txt", "columns_substreams.txt", "default_compression_codec.txt", "metadata_version.txt")
"""Files that are never empty and that ``checksums.txt`` does not list."""
LISTED = b"checksums format version: 4\n"
CODECS = {0x82: "lz4_raw", 0x90: "zstd"}
HASH_BYTES = 16
_HEADER = HASH_BYTES + 9


class WholeParts:
    """The parts of a store. A part does not change after it has its name, so each is checked once.

    May be used by several threads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._whole: frozenset[Path] = frozenset()

    def find_torn(self) -> list[Path]:
        """Incomplete parts."""
        known = self._whole
        parts = {
            table / name for table in self._folder.glob(TABLES) for name in os.listdir(table) if PART.fullmatch(name)
        }
        torn = [part for part in sorted(parts - known) if _lacks_bytes(part)]
        self._whole = frozenset(parts.difference(torn))
        return torn


def set_aside(part: Path) -> None:
    """Move a part to the folder ``detached``, which the engine does not load. The engine must not be running."""
    detached = part.parent / "detached"
    detached.mkdir(exist_ok=True)
    with suppress(FileNotFoundError):  # the engine has deleted the part
        part.rename(detached / f"torn_{len(list(detached.iterdir()))}_{part.name}")


def _lacks_bytes(part: Path) -> bool:
    try:
        sizes = listed_sizes((part / "checksums.txt").read_bytes())
        return any(_size(part / name) != size for name, size in sizes.items()) or any(
            not path.stat().st_size for path in part.iterdir() if path.name in UNLISTED
        )
    except FileNotFoundError:
        return part.exists()  # otherwise it was merged into another part, and deleted
    except ValueError:
        return True


def _size(path: Path) -> int:
    """Size of a file, or of a projection, summed over its own list; -1 if the projection is incomplete."""
    if not path.is_dir():
        return path.stat().st_size
    return -1 if _lacks_bytes(path) else sum(listed_sizes((path / "checksums.txt").read_bytes()).values())


def listed_sizes(checksums: bytes) -> dict[str, int]:
    """Name -> size of the files of a part, from its ``checksums.txt``. Empty if its format or codec is unknown.

    Raises:
        ValueError: it is incomplete.
    """
    if LISTED.startswith(checksums):
        raise ValueError("cut off")
    blocks = checksums[len(LISTED) :]
    if not checksums.startswith(LISTED) or not {*blocks[HASH_BYTES : HASH_BYTES + 1]} <= {*CODECS}:
        return {}
    try:
        content = io.BytesIO(b"".join(_blocks(blocks)))
        return dict([_entry(content) for _ in range(_varint(content))])
    except (OSError, IndexError) as error:
        raise ValueError("cut off") from error


def _blocks(compressed: bytes) -> Iterator[bytes]:
    """Decompress blocks: hash, codec, size with this header but without the hash, decompressed size, content."""
    while compressed:
        if len(compressed) < _HEADER:
            raise ValueError("cut off")
        end = HASH_BYTES + int.from_bytes(compressed[HASH_BYTES + 1 : HASH_BYTES + 5], "little")
        unpacked = int.from_bytes(compressed[HASH_BYTES + 5 : _HEADER], "little")
        codec = pa.Codec(CODECS[compressed[HASH_BYTES]])
        yield codec.decompress(compressed[_HEADER:end], decompressed_size=unpacked, asbytes=True)
        compressed = compressed[end:]


def _entry(content: io.BytesIO) -> tuple[str, int]:
    name = content.read(_varint(content)).decode()
    size = _varint(content)
    content.seek(HASH_BYTES, io.SEEK_CUR)
    if content.read(1)[0]:  # compressed: size and hash of the decompressed content follow
        _varint(content)
        content.seek(HASH_BYTES, io.SEEK_CUR)
    return name, size


def _varint(content: io.BytesIO) -> int:
    value = shift = 0
    while True:
        byte = content.read(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
