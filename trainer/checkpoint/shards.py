"""Reads and writes torch's distributed checkpoints through open folders, with a checksum for each tensor.

    rank-00003.json   [{"name": "model.blocks.0.norm.weight", "offset": [0], "index": 3,
                        "file": "__3_0.distcp", "begin": 0, "length": 1812, "crc32": 2381723912}, ...]

A rank that reads a part of a file detects that the part was cut or that a bit in it changed.
"""

import io
import os
import pathlib
import pickle
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, filesystem, metadata
from torch.distributed.checkpoint.filesystem import FileSystem, _StorageInfo, _StoragePrefix
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from telemetry.errors import UnreadableError
from telemetry.files.plain_pickle import BROKEN
from telemetry.files.private_files import Folder
from telemetry.printable import log
from trainer.checkpoint.folder import INDEX_NAME, read_json, report_name
from trainer.checkpoint.shared_reads import SharedReads, Stored


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
    """torch's writer for ``folder``. It syncs every file. Tensors are on the host, so it must not copy ahead from a
    GPU."""
    writer = FileSystemWriter(folder.path, per_thread_copy_ahead=0)
    writer.fs = _FolderFiles(folder)
    return writer


def numbered(plans: Sequence[SavePlan]) -> list[SavePlan]:
    """Plans that write to files named after the rank."""
    return [replace(plan, storage_data=_StoragePrefix(f"__{rank}_")) for rank, plan in enumerate(plans)]


def reported(folder: Folder, results: Sequence[WriteResult]) -> list[dict[str, Any]]:
    """The files and checksums that a rank wrote, for its ``rank-N.json``."""
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


_INDEX_CLASSES = {
    (module.__name__, name): getattr(module, name)
    for module, names in {
        metadata: (
            "Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata",
            "TensorProperties", "StorageMeta", "_MEM_FORMAT_ENCODING",
        ),
        filesystem: ("_StorageInfo",),
        torch: ("Size",),
        torch.serialization: ("_get_layout",),
        pathlib: ("PosixPath", "Path"),
    }.items()
    for name in names
}  # fmt: skip


class _IndexUnpickler(pickle.Unpickler):
    """Builds only what torch's index consists of, so a hostile index runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _INDEX_CLASSES:
            return _INDEX_CLASSES[module, name]
        if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        raise pickle.UnpicklingError(f"it needs {module}.{name}")


def _read_index(folder: Folder) -> Metadata:
    """torch's index of all shards.

    Raises:
        UnreadableError: the index is missing or damaged, or needs a class that no index needs.
    """
    try:
        with os.fdopen(folder.open(INDEX_NAME), "rb") as file:
            index = _IndexUnpickler(file).load()
    except (OSError, *BROKEN) as error:
        raise _unreadable_index(folder, str(error)) from error
    if not isinstance(index, Metadata) or not isinstance(index.state_dict_metadata, dict):
        raise _unreadable_index(folder, "it is not an index")
    index.storage_meta = StorageMeta()
    return index


def _unreadable_index(folder: Folder, reason: str) -> UnreadableError:
    return UnreadableError(f"cannot read {folder.path / INDEX_NAME}: {reason}", hint="remove this checkpoint")


class CheckedReader(FileSystemReader):
    """torch's reader for an open folder. Raises UnreadableError where a checksum does not match.

    Raises:
        UnreadableError: the index cannot be read.
    """

    shares = True
    """Whether one rank reads what several ranks need, and sends it to the others."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder.path)
        self.fs = _FolderFiles(folder)
        self._folder = folder
        self._index = _read_index(folder)
        self._crc32: dict[str, dict[int, int]] = {}
        self.read_bytes = 0
        """Bytes of tensors that were read so far."""
        self._shared: SharedReads | None = None
        self._last: tuple[Stored, bytes] | None = None

    @property
    def names(self) -> set[str]:
        """Names of the tensors in the checkpoint."""
        return set(self._index.state_dict_metadata)

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The index. The method of torch would run any code that is in the file."""
        return self._index

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read each stored tensor once, in the same order on all ranks. A collective call."""
        items = sorted(plan.items, key=lambda item: self._place_of(item.storage_index))
        if self.shares and dist.is_initialized():
            self._shared = SharedReads([self._place_of(item.storage_index) for item in items])
        try:
            return super().read_data(replace(plan, items=items), planner)
        except Exception as error:
            if self._shared is not None:
                self._shared.abandon(error)
            raise
        finally:
            self._last = None

    def _place_of(self, index: MetadataIndex) -> Stored:
        return _stored(self.storage_data[index])

    def _slice_file(self, file: Any, sinfo: _StorageInfo) -> IO[bytes]:
        """The part of ``file`` that holds one tensor. A rank may need several parts of one tensor."""
        stored = _stored(sinfo)
        if self._last is None or self._last[0] != stored:
            read = partial(self._read, file, sinfo)
            self._last = (stored, read() if self._shared is None else self._shared.read(stored, read))
        return io.BytesIO(self._last[1])

    def _read(self, file: Any, sinfo: _StorageInfo) -> bytes:
        """The first copy with the right checksum."""
        damaged: list[str] = []
        for place, content in self._copies(file, sinfo):
            self.read_bytes += len(content)
            if zlib.crc32(content) == self._expected(sinfo):
                if damaged:
                    log(f"{damaged[0]}: the copy in {place} is used")
                return content
            damaged.append(f"{place} is damaged at byte {sinfo.offset}")
        raise UnreadableError(damaged[0], hint="an older checkpoint is used if there is one")

    def _copies(self, file: Any, sinfo: _StorageInfo) -> Iterator[tuple[str, bytes]]:
        """Name and bytes of each copy of one tensor. There is at least one copy; storage has exactly one."""
        file.seek(sinfo.offset)
        yield str(self._folder.path / sinfo.relative_path), file.read(sinfo.length)

    def _expected(self, sinfo: _StorageInfo) -> int | None:
        name = sinfo.relative_path
        if name not in self._crc32:
            rank = int(name.removeprefix("__").partition("_")[0])
            report = read_json(self._folder, report_name(rank))
            self._crc32[name] = {item["begin"]: item["crc32"] for item in report if item["file"] == name}
        return self._crc32[name].get(sinfo.offset)


def _stored(sinfo: _StorageInfo) -> Stored:
    return Stored(sinfo.relative_path, sinfo.offset, sinfo.length)
