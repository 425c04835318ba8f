"""The verdict on an attempt that died before a step was completed, if the evidence of agents names no cause.

Ranks can fail while they start, before an agent watches them. These stored data show how they failed:

    heartbeats               which ranks died, and which ended with an error
    mark `rank-failed`       the error of a rank
    decision `rank-failed`   what the driver of the job saw
    state of an agent        the signal
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from diagnose.findings import Kind
from diagnose.hang.evidence import HangEvidence, Process, RankEvidence
from diagnose.hang.first_failure import ON_PURPOSE
from diagnose.hang.verdict import LIKELY, HangVerdict, State
from diagnose.hang.wording import Cause, next_step
from diagnose.ranges import named_ranks
from telemetry.host_metrics import Happening
from telemetry.records import RANK_FAILED
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Marks, Ranks
from telemetry.stores.queries.hosts import HostEvents

MOST_ERRORS = 100
PLANNED = frozenset({"drain", "replace", "pause", "end"})
"""Decisions of the driver with which an operator ends ranks."""
Row = Mapping[str, Any]


def early_end(reader: Reader, known: HangEvidence, beats: list[Row]) -> HangVerdict | None:
    """A verdict with the ranks that died, and how. None if all of them were ended on purpose: by a signal, or by an
    operator of the driver.

    ``known``: the evidence that agents took of the ranks. ``beats``: rows of ``Heartbeats`` of ranks that died, or
    ended with an error.
    """
    ranks = {
        row["rank"]: replace(
            known.ranks.get(row["rank"], RankEvidence(rank=row["rank"])),
            process=Process.ENDED if row["ended"] else Process.DEAD,
        )
        for row in beats
    }
    ranks = {rank: of_rank for rank, of_rank in ranks.items() if of_rank.ended_by not in ON_PURPOSE}
    decisions = _decisions(reader, known)
    if not ranks or (RANK_FAILED not in decisions and PLANNED.intersection(decisions)):
        return None
    hosts = {
        row["rank"]: row["host"] for row in reader.read(Ranks(run_id=known.run_id, attempt=known.attempt)).to_pylist()
    }
    ranks = {rank: replace(of_rank, host=hosts.get(rank, "")) for rank, of_rank in ranks.items()}
    evidence = replace(known, ranks={**known.ranks, **ranks})
    gone = tuple(sorted(ranks))
    initiating = gone if len(gone) == 1 else ()
    manner = _first_error(reader, evidence) or decisions.get(RANK_FAILED) or _by_signal(ranks)
    return HangVerdict(
        evidence=evidence,
        kind=Kind.DEAD_RANK,
        initiating=initiating,
        states={rank: State.DEAD if rank in initiating else State.UNKNOWN for rank in evidence.ranks},
        waits={},
        headline=f"{named_ranks(gone)} {_died(ranks)} before the first step of the attempt was complete: {manner}",
        next_step=next_step(evidence, gone, Cause.DEAD if initiating else Cause.DIED_TOGETHER),
        confidence=LIKELY if initiating else LIKELY / 2,
    )


def _died(ranks: Mapping[int, RankEvidence]) -> str:
    verb = "ended" if all(of_rank.process is Process.ENDED for of_rank in ranks.values()) else "died"
    hosts = ", ".join(sorted({of_rank.host for of_rank in ranks.values()} - {""}))
    return f"{verb} on {hosts}" if hosts else verb


def _first_error(reader: Reader, evidence: HangEvidence) -> str:
    """The first error that a rank reported: later ones may be its consequence."""
    marks = Marks(run_id=evidence.run_id, attempt=evidence.attempt, names=(RANK_FAILED,), limit=MOST_ERRORS)
    errors = reader.read(marks).to_pylist()
    return f"rank {errors[0]['rank']} failed first: {errors[0]['text']}" if errors else ""


def _decisions(reader: Reader, evidence: HangEvidence) -> dict[str, str]:
    """Name -> reason of what the driver of the job decided, the newest of each name."""
    events = HostEvents(run_id=evidence.run_id, attempt=evidence.attempt, names=(str(Happening.DRIVER),))
    texts = [row["text"].partition(": ") for row in reader.read(events).to_pylist()]
    return {name: reason for name, _, reason in texts}


def _by_signal(ranks: Mapping[int, RankEvidence]) -> str:
    seen = sorted({of_rank.ended_by for of_rank in ranks.values()} - {""})
    return ", ".join(seen) if seen else "no agent saw how. See the log of the launcher"
