"""Records that agents took of a stall, as evidence: four kinds of text for each rank.

    state             JSON: the live state page, and what the process was doing
    flight-recorder   JSON: torch's own record of collectives
    stack             JSON: threads and their frames
    log               JSON: lines that a healthy run does not print

State pages count operations by axis of the grid, so they need no names of groups. Where torch's record names the
members of its groups (NCCL) it knows the device too, and comes first, unless nothing in it is pending: then the job
stands in what NCCL does not see.

Evidence also comes straight from the rank files of a job, alive or dead, without agent and collector.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diagnose.hang.dump import RankDump, read_dump
from diagnose.hang.dump_files import DumpSet
from diagnose.hang.evidence import HangEvidence, LogLine, Process
from diagnose.hang.from_dumps import evidence_from_dumps
from diagnose.hang.from_states import evidence_from_states, stamp
from diagnose.hang.network import spooled_network
from telemetry.errors import RankscopeError, UnreadableError, UsageError
from telemetry.evidence.collect import collect_evidence
from telemetry.evidence.rank_state import LIVING, live_state
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.settings import spool_of
from telemetry.stages import Stage

MALFORMED = (
    *(RankscopeError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """One text that an agent left."""

    rank: int
    kind: str
    text: str


def evidence_from_bodies(bodies: Iterable[Body], run_id: str = "", attempt: int = 0) -> HangEvidence:
    """All of it put together. A text that cannot be read is told in ``notes``; the rest counts.

    Raises:
        UnreadableError: there is nothing that can be read.
    """
    notes: list[str] = []
    found: dict[str, dict[int, Any]] = {"state": {}, "flight-recorder": {}, "stack": {}, "log": {}}
    for body in bodies:
        try:
            found[body.kind][body.rank] = _read(body)
        except MALFORMED as error:
            notes.append(f"ignored {body.kind} of rank {body.rank}: {str(error).splitlines()[0][:120]}")
    evidence = _counted(found["state"], found["flight-recorder"])
    ranks = {
        rank: replace(one, stack=found["stack"].get(rank, ()), log=found["log"].get(rank, ()))
        for rank, one in evidence.ranks.items()
    }
    return replace(evidence, ranks=ranks, run_id=run_id, attempt=attempt, notes=(*evidence.notes, *notes))


def _read(body: Body) -> Any:
    if body.kind == "flight-recorder":
        return read_dump(body.text.encode(), f"the flight recorder of rank {body.rank}")
    value = json.loads(body.text)
    match body.kind:
        case "state":
            if int(value["rank"]) != body.rank:
                raise ValueError(f"it is of rank {value['rank']}")
            evidence_from_states({body.rank: value})  # one that makes no sense must not take the others with it
            return value
        case "stack":
            return _main_stack(value)
        case "log":
            return tuple(
                LogLine(at_ns=stamp(line["at_ns"]), fault=str(line["fault"]), text=str(line["text"])) for line in value
            )
        case _:
            raise KeyError(body.kind)


def _main_stack(value: Mapping[str, Any]) -> tuple[str, ...]:
    threads = sorted(value["threads"], key=lambda thread: not thread.get("main"))
    return tuple(str(frame) for frame in threads[0]["frames"]) if threads else ()


def _counted(states: Mapping[int, Any], dumps: Mapping[int, RankDump]) -> HangEvidence:
    """Fronts from whichever source sees more, the rest from the states."""
    if not states and not dumps:
        raise UnreadableError("no readable records of a stall", hint="check that an agent runs on each host")
    by_state = evidence_from_states(states) if states else None
    named = sum(bool(dump.groups) for dump in dumps.values())
    if by_state is not None and 2 * named <= len(states):
        return by_state
    by_dump = evidence_from_dumps(DumpSet(by_rank=dumps, notes=()))
    if by_state is None:
        return by_dump
    return _merged(by_state, by_dump) if any(one.pending for one in by_dump.ranks.values()) else by_state


def _merged(by_state: HangEvidence, by_dump: HangEvidence) -> HangEvidence:
    """Fronts of the dumps; processes, stages and places of the states. A rank without a dump has only entered what its
    peers have ended: it counts by its process."""
    ranks = {}
    for rank, one in by_state.ranks.items():
        dump = by_dump.ranks.get(rank)
        if dump is None and one.process in (Process.ALIVE, Process.UNKNOWN):
            continue
        fronts = {} if dump is None else dump.fronts
        told = ("", ()) if dump is None else (dump.recorder, dump.pending)
        ranks[rank] = replace(one, fronts=fronts, recorder=told[0], pending=told[1], on_host=None)
    return replace(by_state, groups=by_dump.groups, ranks=ranks, notes=(*by_state.notes, *by_dump.notes))


LEAST_STILL_S, LEAST_STILL_SLOW_S = 10.0, 300.0
"""A living job in which something began more recently than that is not said to stand still."""
TAKE_THEIR_TIME = tuple(stage.label for stage in (Stage.CHECKPOINT_SNAPSHOT, Stage.CHECKPOINT_WRITE, Stage.EVALUATION))


def evidence_from_spool(spool: Path, run_id: str | None = None, attempt: int | None = None) -> HangEvidence:
    """Evidence of a run under ``spool``, the newest where none is named: of ranks that live as they stand now, of
    others what they and their agent have left. No ranks at all where the job still moves.

    Raises:
        UsageError: no rank file there.
        UnreadableError: nothing that can be read.
    """
    run_id, attempt = _newest(spool, run_id, attempt)
    bodies = [Body(rank=one.rank, kind=one.kind, text=one.body) for one in collect_evidence(spool, run_id, attempt)]
    evidence = evidence_from_bodies(bodies, run_id, attempt)
    lives = _lives(spool, run_id, attempt)
    if lives and _moves(evidence):
        note = f"the last progress was {evidence.still_s:.1f} s ago; run again, or use --watch"
        return HangEvidence(world_size=0, groups=(), ranks={}, run_id=run_id, attempt=attempt, notes=(note,))
    return replace(evidence, network=spooled_network(spool, run_id, attempt), has_ended=not lives)


def _newest(spool: Path, run_id: str | None, attempt: int | None) -> tuple[str, int]:
    """The attempt that began last."""
    began: list[tuple[int, str, int]] = []
    for folder in find_rank_dirs(spool, run_id, attempt):
        with suppress(UnreadableError):
            identity = RankReader(folder).identity()
            began.append((identity.started_ns, identity.run_id, identity.attempt))
    if not began:
        raise UsageError(
            f"no rank file under {spool}",
            hint=f"name the folder where ranks write: --spool DIR (default {spool_of()})",
        )
    return max(began)[1:]


def _lives(spool: Path, run_id: str, attempt: int) -> bool:
    """Whether any rank does. What an agent left of one that does not may say that it did."""
    for folder in find_rank_dirs(spool, run_id, attempt):
        with suppress(UnreadableError):
            reader = RankReader(folder)
            _, process = live_state(reader, reader.identity())
            if process in LIVING:
                return True
    return False


def _moves(evidence: HangEvidence) -> bool:
    """Without an agent that has learned the usual step, only a long standstill counts; a longer one where a rank does
    what takes its time."""
    if any(one.process is Process.DEAD for one in evidence.ranks.values()):
        return False
    slow = any(one.stage in TAKE_THEIR_TIME for one in evidence.ranks.values())
    return evidence.still_s < (LEAST_STILL_SLOW_S if slow else LEAST_STILL_S)
