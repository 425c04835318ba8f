"""The verdict on a stored attempt: the one function that commands, alerts and pages call.

Evidence of a stall counts until the job makes progress after it was taken.

    step 39 |  step 40: stall   x                  the ranks died: the evidence counts
            |    evidence                          (ranks that unwind write records, and complete no step)

    step 39 |  step 40: stall        | step 41     a step completed: the stall is over
            |    evidence

Progress is a step that a rank completes after the stall began. Records, a normal end or the start of another step are
not: a rank that times out, is interrupted by Ctrl-C or catches the error can produce them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from diagnose.hang.early_end import early_end
from diagnose.hang.evidence import NS_PER_S, HangEvidence, Network, Process, RankEvidence
from diagnose.hang.first_failure import STILL_NS
from diagnose.hang.from_bodies import Body, evidence_from_bodies
from diagnose.hang.verdict import HangVerdict, judge
from diagnose.model.fleet import HostEvent
from diagnose.model.outages import LINK_EVENTS, find_outages, may_carry, patience_of
from diagnose.settings import DetectorSettings
from telemetry.records import parse_meta
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Evidence, Heartbeats, LastSteps, Ranks
from telemetry.stores.queries.hosts import HostEvents
from telemetry.tables import ENDED_FAILED

RECORDER = "flight-recorder"
"""Flight recorders are large. They are read only if state pages cannot show the device, or name no cause."""
ON_DEVICE = '"device": "cuda"'
ONE_STALL_NS = 120 * NS_PER_S
"""Evidence of one stall is taken within this time. Agents take it again every half minute."""

Row = Mapping[str, Any]


def stored_verdict(reader: Reader, run_id: str, attempt: int) -> HangVerdict | None:
    """The verdict on an attempt: the ranks that block it, or blocked it until its end, or died before its first step
    was complete. None if it did not stall, or completed a step after that.

    Raises:
        UnreachableError: the store does not answer.
        UnreadableError: nothing of the stored evidence is readable.
    """
    verdict = _verdict_of_bodies(reader, run_id, attempt)
    if verdict is not None and verdict.kind is not None:
        return verdict
    return _early_end(reader, run_id, attempt, None if verdict is None else verdict.evidence) or verdict


def verdict_or_nothing(reader: Reader, run_id: str, attempt: int) -> HangVerdict:
    """As :func:`stored_verdict`. Without a stall, the verdict reports that there is no evidence."""
    return stored_verdict(reader, run_id, attempt) or judge(_nothing(run_id, attempt))


def _nothing(run_id: str, attempt: int) -> HangEvidence:
    return HangEvidence(world_size=0, groups=(), ranks={}, run_id=run_id, attempt=attempt)


def _early_end(reader: Reader, run_id: str, attempt: int, known: HangEvidence | None) -> HangVerdict | None:
    beats = reader.read(Heartbeats(run_id=run_id, attempt=attempt)).to_pylist()
    if not any(map(_has_failed, beats)) or reader.read(LastSteps(run_id=run_id, attempt=attempt)).num_rows:
        return None
    return early_end(reader, known or _nothing(run_id, attempt), [row for row in beats if _has_failed(row)])


def _verdict_of_bodies(reader: Reader, run_id: str, attempt: int) -> HangVerdict | None:
    bodies = _bodies(reader, run_id, attempt, ("state", "stack", "log"))
    needed = not any(body.kind == "state" for body in bodies) or any(ON_DEVICE in body.text for body in bodies)
    recorders = _bodies(reader, run_id, attempt, (RECORDER,)) if needed else []
    verdict = _verdict(reader, run_id, attempt, [*bodies, *recorders])
    if needed or verdict is None or verdict.kind is not None:
        return verdict
    # DDP waits for a future inside backward: the state page of a rank that waits then shows compute.
    recorders = _bodies(reader, run_id, attempt, (RECORDER,))
    return _verdict(reader, run_id, attempt, [*bodies, *recorders]) if recorders else verdict


def _bodies(reader: Reader, run_id: str, attempt: int, kinds: tuple[str, ...]) -> list[Body]:
    rows = reader.read(Evidence(run_id=run_id, attempt=attempt, kinds=kinds)).to_pylist()
    return [Body(rank=row["rank"], kind=row["kind"], text=row["body"]) for row in rows if row["body"]]


def _verdict(reader: Reader, run_id: str, attempt: int, bodies: list[Body]) -> HangVerdict | None:
    if not bodies:
        return None
    evidence = _newest_stall(evidence_from_bodies(bodies, run_id, attempt))
    beats = reader.read(Heartbeats(run_id=run_id, attempt=attempt)).to_pylist()
    last_steps = reader.read(LastSteps(run_id=run_id, attempt=attempt)).to_pylist()
    if _made_progress(evidence, {row["rank"]: row for row in beats}, {row["rank"]: row for row in last_steps}):
        return None
    has_ended = bool(beats) and all(row["ended"] or not row["alive"] for row in beats)
    ended_ns = max(row["at_ns"] for row in beats) if has_ended else 0
    network = _network(reader, run_id, attempt, beats)
    return judge(replace(evidence, network=network, has_ended=has_ended, ended_ns=ended_ns))


def _newest_stall(evidence: HangEvidence) -> HangEvidence:
    newest_ns = max((of_rank.taken_ns for of_rank in evidence.ranks.values()), default=0)
    ranks = {rank: one for rank, one in evidence.ranks.items() if newest_ns - one.taken_ns < ONE_STALL_NS}
    return replace(evidence, ranks=ranks)


def _made_progress(evidence: HangEvidence, beats: Mapping[int, Row], last_steps: Mapping[int, Row]) -> bool:
    """Whether the job made progress after the evidence was taken.

    ``beats`` and ``last_steps``: rows of ``Heartbeats`` and ``LastSteps`` by rank.

    If ranks died, only these ranks count: the others may continue for a moment.
    """
    dead = {rank: of_rank for rank, of_rank in evidence.ranks.items() if of_rank.is_dead}
    counted = dead or evidence.ranks
    if _stalled_in_a_step(evidence):
        return any(
            _completed_a_step(of_rank, beats.get(rank), last_steps.get(rank)) for rank, of_rank in counted.items()
        )
    return any(_moved(of_rank, beats[rank]) for rank, of_rank in counted.items() if rank in beats)


def _stalled_in_a_step(evidence: HangEvidence) -> bool:
    """Whether the job stalled within a step. Otherwise it stalled between steps, or ranks ended while it moved, perhaps
    by Ctrl-C."""
    ranks = evidence.ranks.values()
    is_stall = not any(of_rank.is_gone for of_rank in ranks) or evidence.still_s * NS_PER_S > STILL_NS
    return is_stall and any(of_rank.step_since_ns for of_rank in ranks)


def _completed_a_step(of_rank: RankEvidence, beat: Row | None, last: Row | None) -> bool:
    """Whether a rank completed a step after the stall began. ``last``: number and end of its newest completed step."""
    if beat is not None and beat["dropped"] and beat["step"] > of_rank.step:
        return True  # the span of a step may be among the lost records
    if last is None or last["end_ns"] <= (of_rank.step_since_ns or of_rank.taken_ns):
        return False
    # Older recorders wrote a span for a step that an error had left.
    was_interrupted = beat is not None and last["step"] == beat["step"] == of_rank.step and _has_failed(beat)
    return not was_interrupted


def _has_failed(beat: Row) -> bool:
    return bool(beat["ended"] == ENDED_FAILED or not (beat["alive"] or beat["ended"]))


def _moved(of_rank: RankEvidence, beat: Row) -> bool:
    """Whether a rank recorded anything, or ended normally, after the evidence was taken."""
    if beat["step"] > max(of_rank.step, 0):
        return True
    if beat["ended"] == ENDED_FAILED:  # spans that an error unwinds are recorded, too
        return False
    ended = beat["ended"] and of_rank.process is not Process.ENDED
    return bool(beat["recorded"] > of_rank.recorded or ended)


def _network(reader: Reader, run_id: str, attempt: int, beats: list[dict[str, Any]]) -> Network:
    """The state of the links, from events that the agents sent. ``beats``: rows of ``Heartbeats``."""
    settings = DetectorSettings.from_environment()
    events = reader.read(HostEvents(run_id=run_id, attempt=attempt, names=tuple(map(str, LINK_EVENTS)))).to_pylist()
    if not events:
        return Network(settings=settings)
    metas = [parse_meta(meta) for meta in reader.read(Ranks(run_id=run_id, attempt=attempt))["meta"].to_pylist()]
    outages = find_outages(HostEvent(**row) for row in events)
    return Network(
        outages=tuple(outage for outage in outages if may_carry(metas, outage.device)),
        patience=patience_of(metas),
        settings=settings,
        seen_ns=max((row["at_ns"] for row in beats), default=0),
        gave_up=any(map(_has_failed, beats)),
    )
