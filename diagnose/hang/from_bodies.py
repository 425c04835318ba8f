"""Records that agents took of a stall, as evidence: four kinds of text for each rank.

    state             JSON: the live state page, and the state of the process
    flight-recorder   JSON: torch's own record of collectives
    stack             JSON: threads and their frames
    log               JSON: lines that a healthy run does not print

State pages count operations by axis of the grid, so they need no names of groups. Torch's record comes first if it
lists the members of its groups (NCCL), because it shows the device, too. If nothing in it is pending, the job is
blocked outside of NCCL, and the state pages are used.

Evidence is also read from the rank files of a job, alive or dead, without agent and collector.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diagnose.hang.dump import DumpSet, RankDump, read_dump
from diagnose.hang.evidence import HangEvidence, LogLine, Network, Process
from diagnose.hang.from_dumps import evidence_from_dumps
from diagnose.hang.from_states import evidence_from_states, stamp
from diagnose.model.fleet import HostEvent
from diagnose.model.outages import find_outages, may_carry, patience_of
from diagnose.settings import DetectorSettings
from telemetry.errors import RankscopeError, UnreadableError
from telemetry.evidence import journal
from telemetry.evidence.collect import collect_evidence
from telemetry.evidence.rank_state import LIVING, is_alive, live_state
from telemetry.record.reader import RankReader, find_rank_dirs, no_rank_file
from telemetry.stages import Stage

MALFORMED = (
    *(RankscopeError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError),
)
LEAST_STILL_S, LEAST_STILL_SLOW_S = 10.0, 300.0
"""A living job is not stalled if anything began more recently than this. The second limit is for ``SLOW_STAGES``."""
SLOW_STAGES = tuple(stage.label for stage in (Stage.CHECKPOINT_SNAPSHOT, Stage.CHECKPOINT_WRITE, Stage.EVALUATION))


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """One text that an agent left."""

    rank: int
    kind: str
    text: str


def evidence_from_bodies(bodies: Iterable[Body], run_id: str = "", attempt: int = 0) -> HangEvidence:
    """The evidence in all ``bodies``. An unreadable text is mentioned in ``notes``.

    Raises:
        UnreadableError: nothing is readable.
    """
    notes: list[str] = []
    found: dict[str, dict[int, Any]] = {"state": {}, "flight-recorder": {}, "stack": {}, "log": {}}
    for body in bodies:
        try:
            found[body.kind][body.rank] = _read(body)
        except MALFORMED as error:
            notes.append(_ignored(body.kind, body.rank, error))
    notes.extend(_without_invalid(found["state"]))
    evidence = _counted(found["state"], found["flight-recorder"])
    ranks = {
        rank: replace(of_rank, stack=found["stack"].get(rank, ()), log=found["log"].get(rank, ()))
        for rank, of_rank in evidence.ranks.items()
    }
    return replace(evidence, ranks=ranks, run_id=run_id, attempt=attempt, notes=(*evidence.notes, *notes))


def _ignored(kind: str, rank: int, error: BaseException) -> str:
    reason, *_ = str(error).split("\n", 1)
    return f"ignored {kind} of rank {rank}: {reason[:120]}"


def _without_invalid(states: dict[int, Any]) -> list[str]:
    """Remove invalid state pages, so that the others stay readable. Return a note for each.

    Pages are examined one by one only if they cannot be read together: a job may have thousands of them.
    """
    notes: list[str] = []
    with suppress(*MALFORMED):
        evidence_from_states(states)
        return notes
    for rank in list(states):
        try:
            evidence_from_states({rank: states[rank]})
        except MALFORMED as error:
            notes.append(_ignored("state", rank, error))
            del states[rank]
    return notes


def _read(body: Body) -> Any:
    if body.kind == "flight-recorder":
        return read_dump(body.text.encode(), f"the flight recorder of rank {body.rank}")
    value = json.loads(body.text)
    match body.kind:
        case "state":
            if int(value["rank"]) != body.rank:
                raise ValueError(f"it is of rank {value['rank']}")
            return value
        case "stack":
            threads = sorted(value["threads"], key=lambda thread: not thread.get("main"))
            return tuple(str(frame) for frame in threads[0]["frames"]) if threads else ()
        case "log":
            return tuple(
                LogLine(at_ns=stamp(line["at_ns"]), fault=str(line["fault"]), text=str(line["text"])) for line in value
            )
        case _:
            raise KeyError(body.kind)


def _counted(states: Mapping[int, Any], dumps: Mapping[int, RankDump]) -> HangEvidence:
    """The evidence, with fronts from the source that shows more of them, and the rest from the states."""
    if not states and not dumps:
        raise UnreadableError("no readable records of a stall", hint="check that an agent runs on each host")
    by_state = evidence_from_states(states) if states else None
    named = sum(bool(dump.groups) for dump in dumps.values())
    if by_state is not None and 2 * named <= len(states):
        return by_state
    by_dump = evidence_from_dumps(DumpSet(by_rank=dumps, notes=()))
    if by_state is None:
        return by_dump
    return _merged(by_state, by_dump) if any(of_rank.pending for of_rank in by_dump.ranks.values()) else by_state


def _merged(by_state: HangEvidence, by_dump: HangEvidence) -> HangEvidence:
    """Fronts of the dumps; processes, stages and places of the states. A rank without a dump is used for the state of
    its process only: nothing shows which operations it entered."""
    ranks = {}
    for rank, of_rank in by_state.ranks.items():
        dump = by_dump.ranks.get(rank)
        if dump is not None:
            ranks[rank] = replace(
                of_rank, fronts=dump.fronts, recorder=dump.recorder, pending=dump.pending, on_host=None
            )
        elif of_rank.process not in (Process.ALIVE, Process.UNKNOWN):
            ranks[rank] = replace(of_rank, fronts={}, recorder="", pending=(), on_host=None)
    return replace(by_state, groups=by_dump.groups, ranks=ranks, notes=(*by_state.notes, *by_dump.notes))


def evidence_from_spool(spool: Path, run_id: str | None = None, attempt: int | None = None) -> HangEvidence:
    """Evidence of a run under ``spool``, by default the newest run. Living ranks are examined now. For other ranks, the
    files that they and their agent have left are read. The result has no ranks if the job still makes progress.

    Raises:
        UsageError: no rank file there.
        UnreadableError: nothing is readable.
    """
    run_id, attempt = _newest(spool, run_id, attempt)
    collected = collect_evidence(spool, run_id, attempt)
    bodies = [Body(rank=record.rank, kind=record.kind, text=record.body) for record in collected]
    evidence = evidence_from_bodies(bodies, run_id, attempt)
    lives = _lives(spool, run_id, attempt)
    if lives and _moves(evidence):
        note = f"the last progress was {evidence.still_s:.1f} s ago; run again, or use --watch"
        return HangEvidence(world_size=0, groups=(), ranks={}, run_id=run_id, attempt=attempt, notes=(note,))
    return replace(evidence, network=_network(spool, run_id, attempt), has_ended=not lives)


def _newest(spool: Path, run_id: str | None, attempt: int | None) -> tuple[str, int]:
    """Run and attempt of the attempt that began last."""
    began: list[tuple[int, str, int]] = []
    for folder in find_rank_dirs(spool, run_id, attempt):
        with suppress(UnreadableError):
            identity = RankReader(folder).identity()
            began.append((identity.started_ns, identity.run_id, identity.attempt))
    if not began:
        raise no_rank_file(spool)
    return max(began)[1:]


def _lives(spool: Path, run_id: str, attempt: int) -> bool:
    """Whether any rank is alive now. The records of an agent may be older."""
    for folder in find_rank_dirs(spool, run_id, attempt):
        with suppress(UnreadableError):
            reader = RankReader(folder)
            _, process = live_state(reader, reader.identity())
            if process in LIVING:
                return True
    return False


def _moves(evidence: HangEvidence) -> bool:
    """Whether the job makes progress.

    The usual step time is unknown here. So the job is stalled only after ``LEAST_STILL_S``, or ``LEAST_STILL_SLOW_S``
    in a slow stage.
    """
    if any(of_rank.is_dead for of_rank in evidence.ranks.values()):
        return False
    slow = any(of_rank.stage in SLOW_STAGES for of_rank in evidence.ranks.values())
    return evidence.still_s < (LEAST_STILL_SLOW_S if slow else LEAST_STILL_S)


def _network(spool: Path, run_id: str, attempt: int) -> Network:
    """The state of the links, from events that the agents wrote next to the rank files."""
    folders = find_rank_dirs(spool, run_id, attempt)
    events = [
        HostEvent(host=host, device=event.device, at_ns=event.at_ns, name=event.name, text=event.text)
        for folder in {folder.parent for folder in folders}
        for host, of_host in journal.read(folder)
        for event in of_host
    ]
    if not events:
        return Network()
    metas, gave_up = [], False
    for folder in folders:
        with suppress(UnreadableError):
            reader = RankReader(folder)
            identity = reader.identity()
            alive = is_alive(identity, folder)
            state = reader.live()  # after it: it may end normally in between
            metas.append(identity.meta)
            gave_up |= state.failed or not (state.ended or alive)
    return Network(
        outages=tuple(outage for outage in find_outages(events) if may_carry(metas, outage.device)),
        patience=patience_of(metas),
        settings=DetectorSettings.from_environment(),
        gave_up=gave_up,
    )
