"""Collects evidence of ranks from outside: first the state of all at one moment, then slow parts in parallel.

    state            always: the live page outlives its process
    flight-recorder  from torch's worker server if the process lives and is not stopped; else what torch wrote
    stack            of a living process, stopped or not
    log              what the agent has read so far

One deadline bounds the whole collection, however many ranks do not answer.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns

from telemetry.errors import UnreadableError
from telemetry.evidence.evidence import (
    Evidence,
    Kind,
    died_ns_of,
    ended_by_of,
    habits_of,
    kept,
    living_of,
    next_stamp_ns,
    step_of,
)
from telemetry.evidence.flight_recorder import ask_flight_recorder, read_flight_files
from telemetry.evidence.logs import JobLogs
from telemetry.evidence.rank_state import LIVING, ProcessWord, live_state, state_body
from telemetry.evidence.stacks import take_stack
from telemetry.evidence.usual import Habit, RecentOperations
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.record.state_page import LiveState
from telemetry.records import LOG_OFFSETS, RankIdentity

DEADLINE_S = 8.0
SPARE_S = 0.5
"""Before the deadline, to put an answer together."""
STILL_NS = 10_000_000_000
"""Where no agent has found a stall: a rank stands still if its page has not changed, and an operation has not
completed, for so long. A long first step alone is no stall: it may compile or capture a graph."""
MAX_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A rank at one moment."""

    folder: Path
    identity: RankIdentity
    state: LiveState
    process: ProcessWord
    living: ProcessWord = "alive"
    """What the process did when it was last seen alive."""
    died_ns: int = 0
    """Wall clock; 0 where the end was not seen."""
    ended_by: str = ""
    """``SIGKILL``, ``exit 1`` ...; empty where that was not seen."""
    habits: tuple[Habit, ...] = ()
    """Of each operation of the page, in order; empty where none is known."""
    log: str | None = None
    """The ``log`` text; None where nothing can be read."""
    stands_still: bool = False
    """Nothing is under way that a question could disturb, such as a graph capture."""

    def at_once(self) -> list[Evidence]:
        """What takes no time: ``state`` and ``log``."""
        body = state_body(
            self.identity,
            self.state,
            self.process,
            living=self.living,
            died_ns=self.died_ns,
            ended_by=self.ended_by,
            habits=self.habits,
        )
        found = [self._evidence("state", body)]
        return found if self.log is None else [*found, self._evidence("log", self.log)]

    def questions(self, by_s: float) -> Iterator[Callable[[], Evidence | None]]:
        """Evidence that the rank must answer, or that is read from its memory. Each waits a bounded time.

        ``by_s`` (``time.monotonic``): what needs several answers returns those that it has by then.
        """
        ask = partial(ask_flight_recorder, stands_still=self.stands_still, folder=self.folder)
        flight = ask if self.process == "alive" else read_flight_files
        yield partial(self._answer, "flight-recorder", partial(flight, since_ns=self._step_began_ns(), by_s=by_s))
        if self.process in ("alive", "stopped"):
            yield partial(self._answer, "stack", partial(take_stack, folder=self.folder))

    def flight_files(self, by_s: float) -> Evidence | None:
        """The dump that torch wrote for an ended rank, if it has more than earlier evidence."""
        before = [item for item in kept(self.folder, self.identity.rank) if item.kind == "flight-recorder"]
        known = before[0].body if before else None
        ask = partial(read_flight_files, since_ns=self._step_began_ns(), before=known, by_s=by_s)
        return self._answer("flight-recorder", ask)

    def _step_began_ns(self) -> int:
        """Wall clock; 0 before the first step."""
        began = self.state.step_started_ns
        return self.state.anchor.to_wall_ns(began) if began else 0

    def _answer(self, kind: Kind, ask: Callable[[RankIdentity], str | None]) -> Evidence | None:
        body = ask(self.identity)
        return None if body is None else self._evidence(kind, body)

    def _evidence(self, kind: Kind, body: str) -> Evidence:
        return Evidence(rank=self.identity.rank, at_ns=next_stamp_ns(), kind=kind, body=body)


def take_in_time(ranks: Sequence[Standing], *, deadline_s: float = DEADLINE_S) -> list[Evidence]:
    """What the ranks answer before the deadline; an answer that comes later is left out."""
    by_s = monotonic() + deadline_s - SPARE_S
    return _in_time([question for rank in ranks for question in rank.questions(by_s)], deadline_s)


def take_flight_files(ranks: Sequence[Standing], *, deadline_s: float = DEADLINE_S) -> list[Evidence]:
    """The dumps that torch wrote for ended ranks, if they have more than earlier evidence."""
    by_s = monotonic() + deadline_s - SPARE_S
    return _in_time([partial(rank.flight_files, by_s) for rank in ranks], deadline_s)


def _in_time(questions: Sequence[Callable[[], Evidence | None]], deadline_s: float) -> list[Evidence]:
    if not questions:
        return []
    pool = ThreadPoolExecutor(max_workers=min(MAX_THREADS, len(questions)), thread_name_prefix="rankscope-evidence")
    done, _ = wait([pool.submit(question) for question in questions], timeout=deadline_s)
    pool.shutdown(wait=False, cancel_futures=True)
    answers = [future.result() for future in done if future.exception() is None]
    return sorted((item for item in answers if item is not None), key=lambda item: (item.rank, item.kind))


def collect_evidence(spool: Path, run_id: str | None = None, attempt: int | None = None) -> list[Evidence]:
    """Current evidence of every rank under ``spool``, without an agent, and without writing anything.

    Of ranks that live it is taken anew. Of the others it is what an agent has left of the step they ended in, as it
    stands: a rank that unwinds in good order overwrites its page. Without that it is the page.
    Ranks that cannot be read are left out. Name run and attempt where the spool holds several.
    """
    folders = find_rank_dirs(spool, run_id, attempt)
    standing = [item for item in map(_standing, folders) if item is not None]
    left = {rank.folder: _left_behind(rank) for rank in standing}
    evidence = [item for rank in standing for item in _now(rank, left[rank.folder])] + take_in_time(standing)
    taken = {(item.rank, item.kind) for item in evidence}
    return evidence + [item for found in left.values() for item in found if (item.rank, item.kind) not in taken]


def _now(rank: Standing, left: list[Evidence]) -> list[Evidence]:
    """Evidence of a rank that is available at once, given what an agent left."""
    return [] if left and rank.process not in LIVING else rank.at_once()


def _left_behind(rank: Standing) -> list[Evidence]:
    """What an agent has taken of the step that the rank is still in."""
    found = kept(rank.folder, rank.identity.rank)
    return found if step_of(found) == rank.state.step else []


def _standing(folder: Path) -> Standing | None:
    reader = RankReader(folder)
    with suppress(UnreadableError):
        identity = reader.identity()
        state, process = live_state(reader, identity)
        logs = JobLogs()
        if process in LIVING:
            logs.follow(identity.rank, identity.pid, identity.meta.get(LOG_OFFSETS, ""), identity.uid)
            logs.read_on()
            logs.close()
        before = kept(folder, identity.rank)
        return Standing(
            folder=folder,
            identity=identity,
            state=state,
            process=process,
            living=process if process in LIVING else living_of(before),
            died_ns=died_ns_of(before),
            ended_by=ended_by_of(before),
            habits=_habits(reader, state, before),
            log=logs.body(identity.rank),
            stands_still=_stands_still(state, monotonic_ns()),
        )
    return None


def _stands_still(state: LiveState, now_ns: int) -> bool:
    pending = any(item.issued > item.completed and now_ns - item.issued_ns > STILL_NS for item in state.operations)
    return pending and now_ns - state.beat_ns > STILL_NS


def _habits(reader: RankReader, state: LiveState, before: list[Evidence]) -> tuple[Habit, ...]:
    """By the records; where they have been shipped and reclaimed, as an agent has kept them."""
    operations = RecentOperations(reader)
    operations.read_on()
    habits = tuple(operations.habits(state))
    known = any(item.recent for item in habits)
    return habits if known or step_of(before) != state.step else habits_of(before)
