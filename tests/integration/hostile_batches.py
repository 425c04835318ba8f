"""Batches of valid Arrow with hostile numbers and names, chosen by a seed.

kind                 must be refused
jump                 yes    record numbers far larger than a spool can hold
no-folder            no     plausible rows without a folder, under a name that is used later
wrong-folder         yes    rows of an unannounced folder
live-rank            yes    rows and announcements of a rank that records now
announced            no     a plausible announcement without records, under a name that is used later
bad-announcement     yes    invalid degrees, ranks, times and texts
far-time             yes    rows that would be newer than everything for years
owner                yes    invalid attempts and run names
unannounced-report   yes    heartbeats and evidence of ranks that do not exist
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from telemetry.collector.stored_numbers import MAX_JUMP
from telemetry.records import RECORDS_LOST
from telemetry.wire.codec import encode, labelled
from tests.telemetry.made_rows import made

NUMBERED = ("spans", "marks", "samples")
FAR = (2 * MAX_JUMP, 2**32, 2**40, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
YEAR_NS = 365 * 86_400 * 10**9
NUM_RANKS = 2
_BAD_NAMES = ("", "n" * 10_000, ".hidden", "../../etc", "a/b", "a\nb", "\x1b[2J", "a\u202eb", "\x9b31m", " a")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """An encoded batch."""

    kind: str
    table: str
    body: bytes
    must_refuse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Run names that are used later, and the name of a run that records now."""

    later: tuple[str, ...]
    live: str


def batch_at(seed: int, index: int, targets: Targets) -> Hostile:
    """The batch with number ``index``."""
    chance = random.Random(f"{seed}/{index}")
    kind = chance.choice(sorted(KINDS))
    return KINDS[kind](chance, targets)


def _hostile(
    kind: str,
    table: str,
    rows: list[Mapping[str, Any]],
    run_id: str,
    *,
    attempt: int = 0,
    openings: Mapping[int, int] | None = None,
    must_refuse: bool = True,
) -> Hostile:
    made_rows: pa.Table = made(table, rows)
    body = encode(labelled(made_rows, run_id, attempt, openings))
    return Hostile(kind=kind, table=table, body=body, must_refuse=must_refuse)


def _jump(chance: random.Random, targets: Targets) -> Hostile:
    table, far = chance.choice(NUMBERED), chance.choice(FAR)
    rows = [{"rank": chance.randrange(NUM_RANKS), "seq": far}]
    if chance.random() < 0.5 and far < 2**63:
        rows.insert(0, {**rows[0], "seq": 0})
    mark = {"name": RECORDS_LOST, "text": f"{far // 3} records of 1.0 s"} if table == "marks" and far >= 2**40 else {}
    return _hostile("jump", table, [{**row, **mark} for row in rows], chance.choice(targets.later))


def _no_folder(chance: random.Random, targets: Targets) -> Hostile:
    first, rank = chance.randrange(50), chance.randrange(NUM_RANKS)
    rows = [{"rank": rank, "seq": first + number, "step": 2**31 - 1} for number in range(chance.randrange(1, 200))]
    return _hostile("no-folder", chance.choice(NUMBERED), rows, chance.choice(targets.later), must_refuse=False)


def _wrong_folder(chance: random.Random, targets: Targets) -> Hostile:
    rank = chance.randrange(NUM_RANKS)
    rows = [{"rank": rank, "seq": chance.choice((0, 100, *FAR[:6]))}]
    openings = {rank: chance.choice((1, time.time_ns(), 2**63 - 1))}
    return _hostile("wrong-folder", chance.choice(NUMBERED), rows, chance.choice(targets.later), openings=openings)


def _live_rank(chance: random.Random, targets: Targets) -> Hostile:
    rank = chance.randrange(NUM_RANKS)
    table = chance.choice((*NUMBERED, "heartbeats", "evidence", "ranks"))
    row = {"rank": rank, **({"seq": chance.choice((0, 10**5))} if table in NUMBERED else {})}
    if table == "ranks":
        row |= {"dp_size": NUM_RANKS, "opened_ns": time.time_ns(), "started_ns": time.time_ns(), "host": "intruder"}
    openings = chance.choice((None, {rank: time.time_ns()}))
    return _hostile("live-rank", table, [row], targets.live, openings=openings)


def _announced(chance: random.Random, targets: Targets) -> Hostile:
    row = {
        "rank": chance.randrange(NUM_RANKS),
        "dp_size": NUM_RANKS,
        "host": "intruder",
        "opened_ns": chance.choice((0, 2, time.time_ns())),
        "started_ns": time.time_ns() + chance.randrange(80_000 * 10**9),
    }
    return _hostile("announced", "ranks", [row], chance.choice(targets.later), must_refuse=False)


def _bad_announcement(chance: random.Random, targets: Targets) -> Hostile:
    wrong = chance.choice(
        (
            {"rank": 2**32 - 1},
            {"rank": NUM_RANKS},
            {"dp_size": 0},
            {"dp_size": 2**32 - 1, "pp_size": 2**32 - 1, "tp_size": 2**32 - 1},
            {"opened_ns": time.time_ns() + YEAR_NS},
            {"opened_ns": -1},
            {"started_ns": 2**63 - 1},
            {"started_ns": -(2**63)},
            {"meta": "[" * 5000},
            {"meta": "null"},
            {"host": "\N{RIGHT-TO-LEFT OVERRIDE}" * 10_000},
        )
    )
    return _hostile("bad-announcement", "ranks", [{"dp_size": NUM_RANKS, **wrong}], chance.choice(targets.later))


def _far_time(chance: random.Random, targets: Targets) -> Hostile:
    at_ns = chance.choice((2**63 - 1, time.time_ns() + YEAR_NS, -1, -(2**63)))
    table = chance.choice(("spans", "marks", "samples", "alerts", "host_samples", "host_events"))
    return _hostile(
        "far-time", table, [{"start_ns" if table == "spans" else "at_ns": at_ns}], chance.choice(targets.later)
    )


def _owner(chance: random.Random, targets: Targets) -> Hostile:
    run_id = chance.choice(targets.later)
    if chance.random() < 0.5:
        attempt = chance.choice((-1, -(2**31), 2**31, 2**32 - 1, 2**32, 2**63, 10**30))
        return _hostile("owner", "spans", [{"seq": 0}], run_id, attempt=attempt)
    return _hostile("owner", "spans", [{"seq": 0}], chance.choice(_BAD_NAMES))


def _unannounced_report(chance: random.Random, targets: Targets) -> Hostile:
    row = {"rank": 1000 + chance.randrange(2**31), "at_ns": time.time_ns()}
    openings = chance.choice((None, {row["rank"]: 5}))
    return _hostile(
        "unannounced-report",
        chance.choice(("heartbeats", "evidence")),
        [row],
        chance.choice(targets.later),
        openings=openings,
    )


KINDS: dict[str, Callable[[random.Random, Targets], Hostile]] = {
    "jump": _jump,
    "no-folder": _no_folder,
    "wrong-folder": _wrong_folder,
    "live-rank": _live_rank,
    "announced": _announced,
    "bad-announcement": _bad_announcement,
    "far-time": _far_time,
    "owner": _owner,
    "unannounced-report": _unannounced_report,
}
