"""One flight-recorder dump of PyTorch, JSON or pickle, as checked columns of one rank.

Written for versions 2.4 (2024) to 2.10 (torch 2.13); what a version lacks is left empty. Numbers come as numbers or as
text, ``process_group`` as tuple, list or object, members as a text ``"[0, 2]"``, names with any backend's prefix.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from telemetry.errors import UnreadableError
from telemetry.files.plain_pickle import load_plain
from telemetry.topology import MAX_RANKS

MAX_ENTRIES = 1_000_000
MAX_SOURCE = 200
_TRANSFER = re.compile(r"^(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)$")
_MEMBERS: dict[str, tuple[int, ...]] = {}
"""Texts of members met before: at ten thousand ranks they are long, and mostly the same."""
MAX_MEMBER_TEXTS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpGroup:
    """A group as one rank names it."""

    name: str
    desc: str
    members: tuple[int, ...]
    """Global ranks; empty when the dump does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpStatus:
    """How far a rank has come in a group, by its own count."""

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
    """Without the backend's prefix and without the ranks of a transfer."""
    seq: int
    is_transfer: bool
    peer: int
    """Place of the other side within the group; -1: a collective."""
    sizes: str
    """What members must agree on; empty when the dump does not tell."""
    done: bool
    created_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDump:
    """What one rank's dump says."""

    version: str
    groups: Mapping[str, DumpGroup]
    """By name."""
    status: Mapping[str, DumpStatus]
    """By the rank's own number of the group."""
    entries: tuple[DumpEntry, ...]
    """By record, ascending."""
    source: str = ""
    """Which recorder an agent had it from (``telemetry/evidence/flight_recorder.py``); empty for a file of torch's."""

    @property
    def possible_ranks(self) -> frozenset[int] | None:
        """Who can have written it: the members of all of its groups; None when it names none."""
        known = [frozenset(group.members) for group in self.groups.values() if group.members]
        return frozenset.intersection(*sorted(known, key=len)) if known else None


def read_dump(data: bytes, name: str) -> RankDump:
    """The dump in ``data``; ``name`` is what errors call it.

    Raises:
        UnreadableError: neither JSON nor a pickle of plain values, or no flight-recorder dump.
    """
    try:
        found = _parse(data)
        if not isinstance(found, Mapping) or not ("entries" in found or "pg_status" in found):
            raise ValueError("it has neither entries nor pg_status")
        return _dump(found)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise UnreadableError(
            f"{name} is not a flight-recorder dump ({_plainly(error)})",
            hint="a dump is a pickle or JSON written by torch._C._distributed_c10d._dump_fr_trace()",
        ) from None


def _plainly(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def _parse(data: bytes) -> Any:
    text = data.lstrip()[:1]
    return json.loads(data) if text == b"{" else load_plain(data)


def _dump(found: Mapping[str, Any]) -> RankDump:
    entries = found.get("entries") or []
    if not isinstance(entries, list | tuple) or len(entries) > MAX_ENTRIES:
        raise ValueError("entries is not a list")
    return RankDump(
        version=_text(found.get("version"))[:32],
        groups=_groups(found.get("pg_config") or {}),
        status=_statuses(found.get("pg_status") or {}),
        entries=tuple(sorted((_entry(entry) for entry in entries), key=lambda entry: entry.record)),
        source=_text(found.get("source"))[:MAX_SOURCE],
    )


def _groups(config: Any) -> dict[str, DumpGroup]:
    if not isinstance(config, Mapping):
        raise ValueError("pg_config is not an object")
    groups: dict[str, DumpGroup] = {}
    for key, value in config.items():
        name = _text(value.get("name", key))
        members = _members(value.get("ranks", ""))
        if name or members:
            groups[name] = DumpGroup(name=name, desc=_text(value.get("desc")), members=members)
    return groups


def _members(ranks: Any) -> tuple[int, ...]:
    """``"[0, 2]"`` or a list."""
    if not isinstance(ranks, str):
        return _checked(tuple(int(rank) for rank in ranks))
    known = _MEMBERS.get(ranks)
    if known is None:
        if len(_MEMBERS) >= MAX_MEMBER_TEXTS:
            _MEMBERS.clear()
        known = _MEMBERS[ranks] = _checked(tuple(int(rank) for rank in ranks.strip("[] ").split(",") if rank.strip()))
    return known


def _checked(members: tuple[int, ...]) -> tuple[int, ...]:
    if members and not (min(members) >= 0 and max(members) < MAX_RANKS):
        raise ValueError(f"a member {max(members)} of a group")
    return members


def _statuses(status: Any) -> dict[str, DumpStatus]:
    if not isinstance(status, Mapping):
        raise ValueError("pg_status is not an object")
    return {
        _text(local_id): DumpStatus(
            enqueued=_number(one.get("last_enqueued_collective"), -1),
            completed=_number(one.get("last_completed_collective"), -1),
        )
        for local_id, one in status.items()
    }


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
    group = entry.get("process_group", "")
    match group:
        case (name, desc, *_):
            return _text(name), _text(desc)
        case {"name": name, **rest}:
            return _text(name), _text(rest.get("desc"))
        case _:
            return _text(group), ""


def _sizes(op: str, entry: Mapping[str, Any]) -> str:
    """What members must agree on: sizes and types. Pieces of an all-to-all, a gather or a scatter differ lawfully."""
    side = "output_sizes" if "broadcast" in op else "input_sizes"
    if not op or side not in entry:
        return ""
    types = ",".join(_text(one) for one in entry.get("input_dtypes") or [])
    if any(word in op for word in ("all_to_all", "alltoall", "gather_into", "scatter_from", "coalesced")) or op in (
        *("gather", "scatter", "reduce", "send", "recv", "barrier"),
    ):
        return types
    return f"{[list(map(int, one)) for one in entry.get(side) or []]} {types}"


def _text(value: Any) -> str:
    """Names, and numbers that stand for one. A container would be told in full, and it may hold itself many times."""
    if value is None:
        return ""
    if not isinstance(value, str | int):
        raise ValueError(f"a {type(value).__name__} where a name should be")
    return str(value)


def _number(value: Any, default: int) -> int:
    return default if value is None else int(value)
