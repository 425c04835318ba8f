"""Collects evidence of ranks from outside: first the state of all at one moment, then slow parts in parallel.

    state            always: the live page outlives its process
    flight-recorder  from torch's worker server if the process lives and is not stopped; else what torch wrote
    stack            of a living process, stopped or not
    log              what the agent has read so far

One deadline bounds the whole collection, however many ranks do not answer.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any

import numpy as np

from telemetry.errors import UnreadableError
from telemetry.evidence.evidence import Evidence, Kind, kept, kept_state, next_stamp_ns
from telemetry.evidence.flight_recorder import ask_flight_recorder, read_flight_files
from telemetry.evidence.logs import JobLogs
from telemetry.evidence.rank_state import LIVING, ProcessState, live_state
from telemetry.evidence.stacks import take_stack
from telemetry.evidence.usual import Habit, RecentOperations
from telemetry.process.pid_namespace import pid_of
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.record.state_page import LiveState, Operation
from telemetry.records import LOG_OFFSETS, RankIdentity
from telemetry.topology import AXES, Topology

DEADLINE_S = 8.0
SPARE_S = 0.5
"""Time before the deadline that is reserved to assemble the answers."""
STILL_NS = 10_000_000_000
"""Without an agent, a rank is stalled if its page has not changed, and an operation has not completed, for this long. A
long first step alone is no stall: it may compile or capture a graph."""
MAX_THREADS = 16
MAX_NAMED_MEMBERS = 256
"""Members of larger groups are not listed in the text of each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A rank at one moment."""

    folder: Path
    identity: RankIdentity
    state: LiveState
    process: ProcessState
    living: ProcessState = "alive"
    """The last state of the process before it ended."""
    died_ns: int = 0
    """When the process ended (wall clock); 0 if that was not observed."""
    ended_by: str = ""
    """How the process ended: ``SIGKILL``, ``exit 1`` ...; empty if that was not observed."""
    habits: tuple[Habit, ...] = ()
    """Habits for each operation of the page, in order. Empty if unknown."""
    log: str | None = None
    """The ``log`` text; None if nothing can be read."""
    stands_still: bool = False
    """The rank is stalled: a query cannot disturb it, for example during a graph capture."""

    def at_once(self) -> list[Evidence]:
        """Evidence that takes no time: ``state`` and ``log``."""
        found = [self._evidence("state", self._state_body())]
        return found if self.log is None else [*found, self._evidence("log", self.log)]

    def questions(self, by_s: float) -> Iterator[Callable[[], Evidence | None]]:
        """Evidence that the rank must answer, or that is read from its memory. Each waits a bounded time.

        ``by_s`` (``time.monotonic``): after this time, the answers that have arrived are returned.
        """
        ask = partial(ask_flight_recorder, stands_still=self.stands_still, folder=self.folder)
        flight = ask if self.process == "alive" else read_flight_files
        yield partial(self._answer, "flight-recorder", partial(flight, since_ns=self._step_began_ns(), by_s=by_s))
        if self.process in LIVING:
            yield partial(self._answer, "stack", partial(take_stack, folder=self.folder))

    def flight_files(self, by_s: float) -> Evidence | None:
        """The dump that torch wrote for an ended rank, if it has more than earlier evidence."""
        known = next(
            (item.body for item in kept(self.folder, self.identity.rank) if item.kind == "flight-recorder"), None
        )
        ask = partial(read_flight_files, since_ns=self._step_began_ns(), before=known, by_s=by_s)
        return self._answer("flight-recorder", ask)

    def _step_began_ns(self) -> int:
        return _wall(self.state, self.state.step_started_ns)

    def _answer(self, kind: Kind, ask: Callable[[RankIdentity], str | None]) -> Evidence | None:
        body = ask(self.identity)
        return None if body is None else self._evidence(kind, body)

    def _evidence(self, kind: Kind, body: str) -> Evidence:
        return Evidence(rank=self.identity.rank, at_ns=next_stamp_ns(), kind=kind, body=body)

    def _state_body(self) -> str:
        """One JSON object; times are wall clock nanoseconds, or 0."""
        identity, state, topology = self.identity, self.state, self.identity.topology
        habits = self.habits or (Habit(),) * len(state.operations)
        return json.dumps(
            {
                "rank": identity.rank,
                "host": identity.host,
                "pid": identity.pid,
                "device": identity.meta.get("device", ""),
                "process": self.process,
                "living": self.living,
                "died_ns": self.died_ns,
                "ended_by": self.ended_by,
                "at_ns": time.time_ns(),
                "step": state.step,
                "step_started_ns": self._step_began_ns(),
                "beat_ns": _wall(state, state.beat_ns),
                "recorded": state.recorded,
                "topology": {"dp": topology.dp, "pp": topology.pp, "tp": topology.tp, "mesh": str(topology)},
                "open": [
                    {"stage": span.stage.label, "since_ns": _wall(state, span.since_ns)} for span in state.open_spans
                ],
                "operations": [
                    _operation(state, operation, habit, identity)
                    for operation, habit in zip(state.operations, habits, strict=True)
                ],
            }
        )


def _operation(state: LiveState, operation: Operation, habit: Habit, identity: RankIdentity) -> dict[str, Any]:
    topology = identity.topology
    mask = topology.known_mask(operation.mask)
    grid = {"dp": topology.replica_mask, "pp": topology.mask("pp"), "tp": topology.mask("tp")}
    return {
        "axis": next((axis for axis in AXES if mask and grid[axis] == mask), None),  # for older readers
        "mask": mask,
        "axes": topology.axes_of(mask),
        "ranks": _group(topology, mask, identity.rank),
        "stage": operation.stage.label if operation.stage is not None else None,
        "peer": operation.peer,
        "issued": operation.issued,
        "completed": operation.completed,
        "issued_ns": _wall(state, operation.issued_ns),
        "completed_ns": _wall(state, operation.completed_ns),
        "size_bytes": operation.size_bytes,
        **asdict(habit),
    }


def _group(topology: Topology, mask: int, rank: int) -> list[int]:
    """The members of the group; empty if unknown, or if there are too many: they then follow from the axes."""
    if not mask or topology.world_size <= rank:
        return []
    groups = topology.members(mask)
    if groups.shape[1] > MAX_NAMED_MEMBERS:
        return []
    members: list[int] = groups[int(np.flatnonzero((groups == rank).any(axis=1))[0])].tolist()
    return members


def _wall(state: LiveState, at_ns: int) -> int:
    return state.anchor.to_wall_ns(at_ns) if at_ns else 0


def take_in_time(ranks: Sequence[Standing]) -> list[Evidence]:
    """The answers of the ranks before the deadline. Later answers are left out."""
    by_s = monotonic() + DEADLINE_S - SPARE_S
    return _in_time([question for rank in ranks for question in rank.questions(by_s)])


def take_flight_files(ranks: Sequence[Standing]) -> list[Evidence]:
    """The dumps that torch wrote for ended ranks, if they have more than earlier evidence."""
    by_s = monotonic() + DEADLINE_S - SPARE_S
    return _in_time([partial(rank.flight_files, by_s) for rank in ranks])


def _in_time(questions: Sequence[Callable[[], Evidence | None]]) -> list[Evidence]:
    if not questions:
        return []
    pool = ThreadPoolExecutor(max_workers=min(MAX_THREADS, len(questions)), thread_name_prefix="rankscope-evidence")
    done, _ = wait([pool.submit(question) for question in questions], timeout=DEADLINE_S)
    pool.shutdown(wait=False, cancel_futures=True)
    answers = [future.result() for future in done if future.exception() is None]
    return sorted((item for item in answers if item is not None), key=lambda item: (item.rank, item.kind))


def collect_evidence(spool: Path, run_id: str | None = None, attempt: int | None = None) -> list[Evidence]:
    """Current evidence of every rank under ``spool``, without an agent, and without writing anything.

    Evidence of living ranks is collected now. For other ranks, the result is the evidence that an agent kept of their
    last step, because a rank that ends normally overwrites its page. Without such evidence, it is the page.
    Ranks that cannot be read are left out. Give run and attempt if the spool holds several.
    """
    ranks = [item for item in map(_standing, find_rank_dirs(spool, run_id, attempt)) if item is not None]
    evidence, left = [], []
    for rank in ranks:
        before = kept(rank.folder, rank.identity.rank)
        before = before if kept_state(before).step == rank.state.step else []
        left += before
        if not before or rank.process in LIVING:
            evidence += rank.at_once()
    evidence += take_in_time(ranks)
    taken = {(item.rank, item.kind) for item in evidence}
    return evidence + [item for item in left if (item.rank, item.kind) not in taken]


def _standing(folder: Path) -> Standing | None:
    reader = RankReader(folder)
    with suppress(UnreadableError):
        identity = reader.identity()
        state, process = live_state(reader, identity)
        now = monotonic_ns()
        logs = JobLogs()
        if process in LIVING:
            logs.follow(identity.rank, pid_of(identity), identity.meta.get(LOG_OFFSETS, ""), identity.uid)
            logs.read_on()
            logs.close()
        before = kept_state(kept(folder, identity.rank))
        operations = RecentOperations(reader)
        operations.read_on()
        habits = tuple(operations.habits(state))
        if before.step == state.step and not any(habit.recent for habit in habits):
            habits = before.habits  # the records are shipped and reclaimed
        pending_ns = [now - item.issued_ns for item in state.operations if item.issued > item.completed]
        return Standing(
            folder=folder,
            identity=identity,
            state=state,
            process=process,
            living=process if process in LIVING else before.living,
            died_ns=before.died_ns,
            ended_by=before.ended_by,
            habits=habits,
            log=logs.body(identity.rank),
            stands_still=max(pending_ns, default=0) > STILL_NS and now - state.beat_ns > STILL_NS,
        )
    return None
