"""torch's distributed checkpoint, reading and writing through open folders, with a checksum for each tensor.

    rank-00003.json   [{"name": "model.blocks.0.norm.weight", "offset": [0], "index": 3,
                        "file": "__3_0.distcp", "begin": 0, "length": 1812, "crc32": 2381723912}, ...]

A file that was cut, or in which a bit changed, is found by whichever rank reads that part of it.
"""

import io
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import FileSystem, _StorageInfo, _StoragePrefix
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult

from telemetry.errors import UnreadableError
from telemetry.files.private_files import Folder
from trainer.checkpoint.folder import read_json, report_name


class _FolderFiles(FileSystem):
    """Files of one open folder, for torch's reader and writer. Only the last name of a path counts."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """A new private file (``wb``), or an existing one (``rb``)."""
        name = Path(path).name
        descriptor = self._folder.make(name) if mode == "wb" else self._folder.open(name)
        with os.fdopen(descriptor, mode) as stream:
            yield stream

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return Path(path).name in self._folder.names()

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        self._folder.rename(Path(path).name, Path(new_path).name)

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        self._folder.remove(Path(path).name)


def writer_into(folder: Folder) -> FileSystemWriter:
    """torch's writer for ``folder``. It syncs every file."""
    writer = FileSystemWriter(folder.path)
    writer.fs = _FolderFiles(folder)
    return writer


def numbered(plans: Sequence[SavePlan]) -> list[SavePlan]:
    """Plans that write to files named after the rank."""
    return [replace(plan, storage_data=_StoragePrefix(f"__{rank}_")) for rank, plan in enumerate(plans)]


def reported(folder: Folder, results: Sequence[WriteResult]) -> list[dict[str, Any]]:
    """What a rank wrote, for its ``rank-N.json``."""
    report = []
    for result in results:
        place, index = result.storage_data, result.index
        with os.fdopen(folder.open(place.relative_path), "rb") as file:
            file.seek(place.offset)
            crc32 = zlib.crc32(file.read(place.length))
        report.append(
            {
                "name": index.fqn,
                "offset": None if index.offset is None else list(index.offset),
                "index": index.index,
                "file": place.relative_path,
                "begin": place.offset,
                "length": place.length,
                "size_bytes": result.size_in_bytes,
                "crc32": crc32,
            }
        )
    return report


def read_report(folder: Folder, rank: int) -> list[WriteResult]:
    """What rank ``rank`` wrote, as its writer returned it."""
    return [
        WriteResult(
            index=MetadataIndex(item["name"], item["offset"], item["index"]),
            size_in_bytes=item["size_bytes"],
            storage_data=_StorageInfo(item["file"], item["begin"], item["length"]),
        )
        for item in read_json(folder, report_name(rank))
    ]


class CheckedReader(FileSystemReader):
    """torch's reader for an open folder. Raises UnreadableError where a checksum does not match."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder.path)
        self.fs = _FolderFiles(folder)
        self._folder = folder
        self._crc32: dict[str, dict[int, int]] = {}
        self.read_bytes = 0
        """Of tensors, so far."""

    def _slice_file(self, file: Any, sinfo: _StorageInfo) -> IO[bytes]:
        """The part of ``file`` that holds one tensor."""
        file.seek(sinfo.offset)
        content = file.read(sinfo.length)
        self.read_bytes += len(content)
        if zlib.crc32(content) != self._expected(sinfo):
            raise UnreadableError(
                f"{self._folder.path / sinfo.relative_path} is damaged at byte {sinfo.offset}",
                hint="an older checkpoint is used if there is one",
            )
        return io.BytesIO(content)

    def _expected(self, sinfo: _StorageInfo) -> int | None:
        name = sinfo.relative_path
        if name not in self._crc32:
            rank = int(name.removeprefix("__").partition("_")[0])
            report = read_json(self._folder, report_name(rank))
            self._crc32[name] = {item["begin"]: item["crc32"] for item in report if item["file"] == name}
        return self._crc32[name].get(sinfo.offset)
