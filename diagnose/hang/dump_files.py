"""The dumps in a folder, whatever their names, and which rank each is of."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from diagnose.hang.dump import RankDump, read_dump
from telemetry.errors import UnreadableError, UsageError
from telemetry.files.input_file import read_input
from telemetry.topology import MAX_RANKS

MAX_DUMP_BYTES = 2**30
_RANK_WORD = re.compile(r"rank[_\-.]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSet:
    """The dumps of one job."""

    by_rank: Mapping[int, RankDump]
    notes: tuple[str, ...]
    """What was left out, and why."""


def read_dumps(folder: Path) -> DumpSet:
    """All flight-recorder dumps in ``folder`` and the folders below it.

    Raises:
        UsageError: there is no such folder, no file in it, or several dumps of one rank that differ.
        UnreadableError: files, but not one dump among them.
    """
    paths = _files(folder)
    by_rank: dict[int, RankDump] = {}
    notes: list[str] = []
    for path in paths:
        try:
            dump = _read(path)
            rank = _rank_of(path.name, dump)
        except (UnreadableError, OSError) as error:
            notes.append(f"ignored: {getattr(error, 'message', None) or error}")
            continue
        if by_rank.setdefault(rank, dump) != dump:
            raise UsageError(
                f"two different dumps of rank {rank} under {folder}, one of them {path.name}",
                hint="name the folder of a single job and attempt",
            )
    if not by_rank:
        raise UnreadableError(
            f"no flight-recorder dump among the {len(paths)} files of {folder}; {notes[0]}",
            hint="name the folder set in TORCH_FR_DUMP_TEMP_FILE (or TORCH_NCCL_DEBUG_INFO_TEMP_FILE)",
        )
    return DumpSet(by_rank=by_rank, notes=tuple(notes))


def _files(folder: Path) -> list[Path]:
    try:
        paths = [folder] if folder.is_file() else list(_regular_files(folder))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", hint="check the read permission") from None
    paths.sort(key=lambda path: [int(part) for part in _NUMBER.findall(path.name)] or [0])
    if not paths:
        what = "is empty" if folder.is_dir() else "is not a file or folder" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}", hint="name the folder of the dumps: --dumps DIR")
    return paths


def _regular_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _read(path: Path) -> RankDump:
    content = read_input(path, max_bytes=MAX_DUMP_BYTES)
    if not content:
        raise UnreadableError(f"{path.name} has 0 bytes", hint="a dump has kilobytes to megabytes")
    return read_dump(content, path.name)


def _rank_of(name: str, dump: RankDump) -> int:
    """By what the dump says of its groups, else by the name of its file.

    Raises:
        UnreadableError: neither tells.
    """
    possible = dump.possible_ranks
    if possible is not None and len(possible) == 1:
        return next(iter(possible))
    named = [int(one) for one in (*_RANK_WORD.findall(name), *reversed(_NUMBER.findall(name)))]
    for rank in named:
        if rank < MAX_RANKS and (possible is None or rank in possible):
            return rank
    raise UnreadableError(
        f"the rank of {name} is unknown: neither its name nor its groups show it", hint="add the rank to the file name"
    )
