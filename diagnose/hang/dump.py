"""Read flight-recorder dumps of PyTorch, JSON or pickle: one dump as checked records of a rank, or all in a folder.

Known versions of the format are 2.4 (2024) to 2.10 (torch 2.13). Fields that a version lacks are left empty. In a dump,
numbers are numbers or text, ``process_group`` is a tuple, list or object, members are a text ``"[0, 2]"``, and names
have the prefix of any backend.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import read_input
from telemetry.files.plain_pickle import MalformedError, load_plain
from telemetry.plain_errors import why_malformed
from telemetry.printable import one_line
from telemetry.topology import MAX_RANKS

MAX_DUMP_BYTES = 2**30
MAX_ENTRIES = 1_000_000
MAX_SOURCE = 200
MAX_MEMBER_TEXTS = 100_000
MOST_REASONS = 3
FORMATS = (
    "accepted: the pickle or JSON files that torch writes to TORCH_FR_DUMP_TEMP_FILE (or "
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE), and the result of torch._C._distributed_c10d._dump_fr_trace()"
)
"""Hint for a file that is not a dump."""
_TRANSFER = re.compile(r"^(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)$")
_UNEQUAL_SIZES = ("all_to_all", "alltoall", "gather_into", "scatter_from", "coalesced")
_NO_SIZES = ("gather", "scatter", "reduce", "send", "recv", "barrier")
_RANK_IN_NAME = re.compile(r"rank[_\-.]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpGroup:
    """A group as one rank names it."""

    name: str
    desc: str
    members: tuple[int, ...]
    """Global ranks; empty if the dump has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpStatus:
    """Progress of a rank in a group, by its own count."""

    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpEntry:
    """A row of the flight recorder."""

    record: int
    local_id: str
    """The rank's own number of the group."""
    group: str
    """The group's name."""
    desc: str
    op: str
    """Name of the operation, without the backend's prefix and without the ranks of a transfer."""
    seq: int
    is_transfer: bool
    peer: int
    """Place of the other side within the group; -1: a collective."""
    sizes: str
    """Sizes and types that members must agree on; empty if the dump has none."""
    done: bool
    created_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDump:
    """The dump of one rank."""

    version: str
    groups: Mapping[str, DumpGroup]
    """Name -> group."""
    status: Mapping[str, DumpStatus]
    """The rank's own number of a group -> its progress there."""
    entries: tuple[DumpEntry, ...]
    """In ascending order of ``record``."""
    source: str = ""
    """The recorder that an agent read (``telemetry/evidence/flight_recorder.py``); empty for a file of torch."""

    @property
    def possible_ranks(self) -> frozenset[int] | None:
        """Ranks that can have written it: the members of all of its groups; None if it names none."""
        known = [frozenset(group.members) for group in self.groups.values() if group.members]
        return frozenset.intersection(*sorted(known, key=len)) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSet:
    """The dumps of one job."""

    by_rank: Mapping[int, RankDump]
    notes: tuple[str, ...]
    """Files that were ignored, and why."""


def read_dumps(folder: Path) -> DumpSet:
    """All flight-recorder dumps in ``folder`` and the folders below it, whatever their names.

    Raises:
        UsageError: there is no such folder, no file in it, or several dumps of one rank that differ.
        UnreadableError: files, but no dump among them.
    """
    paths = _files(folder)
    by_rank: dict[int, RankDump] = {}
    notes: list[str] = []
    for path in paths:
        try:
            content = read_input(path, max_bytes=MAX_DUMP_BYTES)
            if not content:
                raise UnreadableError(
                    f"{path.name} is empty", hint="the rank may have ended before its dump was written"
                )
            dump = read_dump(content, path.name)
            rank = _rank_of(path.name, dump)
        except (UnreadableError, OSError) as error:
            notes.append(error.message if isinstance(error, UnreadableError) else f"{path.name}: {error.strerror}")
            continue
        if by_rank.setdefault(rank, dump) != dump:
            raise UsageError(
                f"two different dumps of rank {rank} under {folder}, one of them {path.name}",
                hint="give the folder of a single job and attempt",
            )
    if not by_rank:
        raise UnreadableError(
            f"no flight-recorder dump in {folder} (files: {len(paths)}): {'; '.join(notes[:MOST_REASONS])}",
            hint=FORMATS,
        )
    if notes:
        read = f"{len(paths) - len(notes)} of {len(paths)} files of {folder} were read"
        notes = [read, *(f"ignored: {note}" for note in notes)]
    return DumpSet(by_rank=by_rank, notes=tuple(notes))


def _files(folder: Path) -> list[Path]:
    try:
        paths = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", hint="check the read permission") from None
    paths.sort(key=lambda path: [int(part) for part in _NUMBER.findall(path.name)] or [0])
    if not paths:
        what = "is empty" if folder.is_dir() else "is not a file or folder" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}", hint="give the folder of the dumps: --dumps DIR")
    return paths


def _rank_of(name: str, dump: RankDump) -> int:
    """The rank that wrote a dump, from the groups of the dump, else from the name of its file.

    Raises:
        UnreadableError: neither shows the rank.
    """
    possible = dump.possible_ranks
    if possible is not None and len(possible) == 1:
        return next(iter(possible))
    named = [int(digits) for digits in (*_RANK_IN_NAME.findall(name), *reversed(_NUMBER.findall(name)))]
    for rank in named:
        if rank < MAX_RANKS and (possible is None or rank in possible):
            return rank
    raise UnreadableError(
        f"the rank of {name} is unknown: neither its name nor its groups show it", hint="add the rank to the file name"
    )


def read_dump(data: bytes, name: str) -> RankDump:
    """The dump in ``data``; errors call it ``name``.

    Raises:
        UnreadableError: neither JSON nor a pickle of plain values, or no flight-recorder dump.
    """
    try:
        content = json.loads(data) if data.lstrip()[:1] == b"{" else load_plain(data)
        if not isinstance(content, Mapping) or not ("entries" in content or "pg_status" in content):
            raise MalformedError("it has neither entries nor pg_status")
        return _dump(content)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        reason = one_line(why_malformed(error), 160)
        raise UnreadableError(f"{name} is not a flight-recorder dump ({reason})", hint=FORMATS) from None


def _dump(content: Mapping[str, Any]) -> RankDump:
    entries = content.get("entries") or []
    if not isinstance(entries, list | tuple) or len(entries) > MAX_ENTRIES:
        raise MalformedError("entries is not a list")
    status = _mapping(content, "pg_status")
    return RankDump(
        version=_text(content.get("version"))[:32],
        groups=_groups(_mapping(content, "pg_config")),
        status={
            _text(local_id): DumpStatus(
                enqueued=_number(counts.get("last_enqueued_collective"), -1),
                completed=_number(counts.get("last_completed_collective"), -1),
            )
            for local_id, counts in status.items()
        },
        entries=tuple(sorted((_entry(entry) for entry in entries), key=lambda entry: entry.record)),
        source=_text(content.get("source"))[:MAX_SOURCE],
    )


def _mapping(content: Mapping[str, Any], key: str) -> Mapping[Any, Any]:
    value = content.get(key) or {}
    if not isinstance(value, Mapping):
        raise MalformedError(f"{key} is not an object")
    return value


def _groups(config: Mapping[Any, Any]) -> dict[str, DumpGroup]:
    groups: dict[str, DumpGroup] = {}
    for key, value in config.items():
        name, ranks = _text(value.get("name", key)), value.get("ranks", "")
        members = _listed(ranks) if isinstance(ranks, str) else _checked(tuple(int(rank) for rank in ranks))
        if name or members:
            groups[name] = DumpGroup(name=name, desc=_text(value.get("desc")), members=members)
    return groups


@lru_cache(maxsize=MAX_MEMBER_TEXTS)
def _listed(ranks: str) -> tuple[int, ...]:
    """The members in a text such as ``"[0, 2]"``. Cached: at ten thousand ranks, texts are long and mostly the same."""
    return _checked(tuple(int(rank) for rank in ranks.strip("[] ").split(",") if rank.strip()))


def _checked(members: tuple[int, ...]) -> tuple[int, ...]:
    if members and not (min(members) >= 0 and max(members) < MAX_RANKS):
        raise MalformedError(f"a group has the member {max(members)}")
    return members


def _entry(entry: Any) -> DumpEntry:
    group, desc = _group_of(entry)
    named = _text(entry.get("profiling_name"))
    op = named.partition(":")[2] or named
    transfer = _TRANSFER.match(op)
    is_transfer = bool(transfer or entry.get("is_p2p"))
    return DumpEntry(
        record=_number(entry.get("record_id", entry.get("id")), 0),
        local_id=_text(entry.get("pg_id")),
        group=group,
        desc=desc,
        op=transfer[1] if transfer else op,
        seq=_number(entry.get("p2p_seq_id" if is_transfer else "collective_seq_id", entry.get("seq_id")), 0),
        is_transfer=is_transfer,
        peer=int(transfer[3]) if transfer else -1,
        sizes=_sizes(op, entry),
        done=entry.get("state") == "completed" or bool(entry.get("retired")),
        created_ns=_number(entry.get("time_created_ns"), 0),
    )


def _group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    match entry.get("process_group", ""):
        case (name, desc, *_):
            return _text(name), _text(desc)
        case {"name": name, **rest}:
            return _text(name), _text(rest.get("desc"))
        case group:
            return _text(group), ""


def _sizes(op: str, entry: Mapping[str, Any]) -> str:
    """The sizes and types of an operation as text. Empty if they are not known.

    Pieces of an all-to-all, a gather or a scatter may differ in size. So their text has only the types.
    """
    side = "output_sizes" if "broadcast" in op else "input_sizes"
    if not op or side not in entry:
        return ""
    types = ",".join(_text(dtype) for dtype in entry.get("input_dtypes") or [])
    if op in _NO_SIZES or any(name in op for name in _UNEQUAL_SIZES):
        return types
    return f"{[list(map(int, shape)) for shape in entry.get(side) or []]} {types}"


def _text(value: Any) -> str:
    """A name, or a number that is used as a name, as text. Containers are refused: they may contain themselves."""
    if value is None:
        return ""
    if not isinstance(value, str | int):
        raise MalformedError(f"a {type(value).__name__} where a name should be")
    return str(value)


def _number(value: Any, default: int) -> int:
    return default if value is None else int(value)
