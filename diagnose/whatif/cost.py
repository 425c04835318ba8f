"""What a fault costs the job: the gain of its fix, by a replay of the steps with one thing changed.

    recorded    rank 5    |==== F ====|== B ==|     rank 5 takes 1.4x       step 110 ms
    own excess                |--|                  28 ms longer than its peers
    replayed    rank 5    |== F ==|== B ==|         like its peers          step 106 ms: the fault costs 4 ms

The excess of a rank can be hidden: in a bubble, behind another slow rank, behind a longer wait. Only the replay shows
what the job loses.

finding                     the change that is replayed
slow rank, GPU or host      computes of its workers (all tp ranks) take the time of other replicas
stage-imbalance             every pp rank has the same mean compute
data-imbalance              every microbatch takes the mean time of a microbatch of its worker
late-launch, if by gc       all ranks collect garbage at the same time
others                      none: they keep the cost that the detector found

The excess of a slow link cannot be replayed: if every group of an axis has a member on the host, no group is left that
shows the usual time.

Small windows are replayed once for all findings. Of a large window, the newest steps of each finding are replayed.

Source: What-if analysis, arXiv 2505.05713, section 4.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from diagnose.findings import LEAST_COST_S, Basis, Finding, Kind, Severity, StepWindow, severity_of
from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.operations import Bools, step_time_ns
from diagnose.model.self_time import without_inner
from diagnose.model.view import RunView
from diagnose.ranges import named_ranks
from diagnose.whatif.analysis import MAX_REPLAY_ERROR, Replayed, missed, replay_of
from diagnose.whatif.slots import FloatVector, Lanes, Slots
from telemetry.stages import Stage

MAX_OPERATIONS = 1_000_000
"""Limit of the operations in a replay for one finding, which takes some seconds. Of a larger window, only the newest
steps are replayed, at least one."""
OF_RANKS = frozenset({Kind.COMPUTE_STRAGGLER, Kind.HOST_CONTENTION, Kind.GPU_THROTTLED})
REPLAYED = OF_RANKS | {Kind.STAGE_IMBALANCE, Kind.DATA_IMBALANCE, Kind.LATE_LAUNCH}
"""Kinds with a change that can be replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One change, and what it saves over some steps."""

    change: str
    saved_s: float
    """Seconds. Negative if the fix would cost time."""
    share: float
    """Share of the time of these steps."""
    window: StepWindow | None = None
    """These steps. None: all steps of the analysis."""

    @property
    def in_words(self) -> str:
        """``rank 5 like its peers, steps 20 to 114``: the change, with its steps if they are not all."""
        return self.change if self.window is None else f"{self.change}, {self.window.in_words}"

    @property
    def gains(self) -> bool:
        """Whether the fix saves time. A negative saving is smaller than the noise of the steps."""
        return self.saved_s > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costed:
    """A finding with its cost."""

    finding: Finding
    fix: Fix | None
    """None if no change was replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is different in a replay."""

    text: str
    own_s: Lanes
    """Own times of operations, as in ``Assumptions``."""
    costs_s: FloatVector | float = 0.0
    """Seconds that the change itself takes in each step."""


class Replay:
    """Steps that can be replayed with a change."""

    def __init__(self, view: RunView, run: Replayed) -> None:
        self.view = view
        self.run = run

    @cached_property
    def before_s(self) -> FloatVector:
        """Replayed time of each step without a change."""
        return np.asarray(self.run.assumptions.with_times(self.run.assumptions.own_s)[0])

    @property
    def error(self) -> float:
        """Relative difference between replayed and measured step times."""
        measured_s = step_time_ns(self.view.step_ns[self.run.times.rows]) / 1e9
        return abs(float(self.before_s.mean() / measured_s) - 1)

    def saved(self, change: Change, chosen: Bools | None = None) -> Fix:
        """What a change saves: the share that it removes from the replayed time, applied to the measured time.

        ``chosen``: which of the replayed steps. None: all.
        """
        after_s = self.run.assumptions.with_times(change.own_s)[0] + change.costs_s
        rows = slice(None) if chosen is None else chosen
        share = 1 - float(after_s[rows].sum() / self.before_s[rows].sum())
        measured_s = float(self.view.step_ns[self.run.times.rows][rows].sum()) / 1e9
        return Fix(change=change.text, saved_s=share * measured_s, share=share)

    def change_for(self, finding: Finding) -> Change | None:
        """The change that removes a finding. None if there is no change that can be replayed."""
        if finding.kind in OF_RANKS:
            return self.ranks_like_peers(finding.ranks)
        if finding.kind is Kind.STAGE_IMBALANCE:
            return self.balanced_stages()
        if finding.kind is Kind.DATA_IMBALANCE:
            return self.equal_microbatches()
        by_gc = finding.kind is Kind.LATE_LAUNCH and finding.evidence.get("late_launches_with_gc")
        return self.planned_collections() if by_gc else None

    def ranks_like_peers(self, ranks: Sequence[int]) -> Change | None:
        """The change that gives ``ranks`` the times of other replicas. None if no other replica does the same work.

        Ranks of one tensor-parallel group are one worker.
        """
        slots, own, topology = self._slots, self.run.assumptions.own_s.copy(), self.view.topology
        if not ranks or topology.dp < 2:
            return None
        places = np.unique([(topology.place(rank).pp, topology.place(rank).dp) for rank in ranks], axis=0)
        for pp in np.unique(places[:, 0]):
            slow = places[places[:, 0] == pp, 1]
            if len(slow) == topology.dp:
                return None
            mine = np.flatnonzero(_is_compute(slots) & (slots.pp == pp))
            typical = np.delete(self.run.assumptions.own_s[mine], slow, axis=2).mean(axis=2)
            own[mine[:, None], :, slow[None, :]] = typical[:, None]
        return Change(text=f"{named_ranks(ranks)} like {'its' if len(ranks) == 1 else 'their'} peers", own_s=own)

    def balanced_stages(self) -> Change | None:
        """The change that gives all pipeline ranks the same mean compute. None without a pipeline."""
        slots, own = self._slots, self.run.assumptions.own_s.copy()
        if len(np.unique(slots.pp)) < 2:
            return None
        for stage in WORK_STAGES:
            of_stage = slots.stage == stage
            if of_stage.any():
                for pp in np.unique(slots.pp):
                    mine = of_stage & (slots.pp == pp)
                    own[mine] *= own[of_stage].mean() / own[mine].mean()
        return Change(text="balanced pipeline stages", own_s=own)

    def equal_microbatches(self) -> Change:
        """The change that removes differences between microbatches. Lasting differences between workers stay."""
        slots, own = self._slots, self.run.assumptions.own_s.copy()
        for key in np.unique(np.stack([slots.stage, slots.pp, slots.chunk])[:, _is_compute(slots)], axis=1).T:
            same = (slots.stage == key[0]) & (slots.pp == key[1]) & (slots.chunk == key[2])
            own[same] = own[same].mean(axis=(0, 1), keepdims=True)
        return Change(text="equal microbatches", own_s=own)

    def planned_collections(self) -> Change | None:
        """The change that makes all ranks collect garbage at the same time. None if no garbage was collected within a
        compute, or if computes gather parameters inside."""
        slots, rows, operations = self._slots, self.run.times.rows, self.view.operations
        compute = {stage: operations[stage] for stage in WORK_STAGES if stage in operations}
        if Stage.GC not in operations or not compute or self.run.times.work_s is not None:
            return None  # compute time excludes collections
        collecting_ns = {
            stage: operations[stage].duration_ns - left
            for stage, left in without_inner(compute, {Stage.GC: operations[Stage.GC]}).items()
        }
        own, topology = self.run.assumptions.own_s.copy(), self.view.topology
        for slot in np.flatnonzero(_is_compute(slots)).tolist():
            stage = next(stage for stage in collecting_ns if stage == slots.stage[slot])
            of_slot_ns = topology.arranged(collecting_ns[stage][rows][:, slots.occurrence[slot]])[:, :, slots.pp[slot]]
            own[slot] -= of_slot_ns.sum(axis=2, keepdims=True) / 1e9  # a compute of a worker waits for all its tp ranks
        each_rank_s = np.sum([ns[rows].sum(axis=(1, 2)) for ns in collecting_ns.values()], axis=0) / 1e9
        each_rank_s = each_rank_s / topology.world_size
        if not each_rank_s.any():
            return None
        text = "garbage collection in the same step on all ranks"
        return Change(text=text, own_s=np.maximum(own, 0), costs_s=each_rank_s)

    @property
    def _slots(self) -> Slots:
        return self.run.times.slots


def _is_compute(slots: Slots) -> Bools:
    return np.asarray(np.isin(slots.stage, WORK_STAGES))


def with_costs(findings: Iterable[Finding], view: RunView, whole: "Replay | str | None" = None) -> list[Costed]:
    """The findings of a view with their costs.

    ``whole``: the replay of the whole view, or the reason why there is none. If None, it is made if a finding needs it.
    """
    findings = list(findings)
    if not any(finding.kind in REPLAYED for finding in findings):
        return [Costed(finding=finding, fix=None) for finding in findings]
    is_small, costed = _num_operations(view) <= MAX_OPERATIONS, []
    made: dict[StepWindow, Replay | str] = {} if whole is None or not is_small else {view.window: whole}
    for finding in findings:
        if finding.kind not in REPLAYED or view.rank_numbers:
            costed.append(Costed(finding=finding, fix=None))
            continue
        try:
            steps = view if is_small else _newest_steps_of(finding, view)
            if steps.window not in made:
                made[steps.window] = replay_or_reason(steps)
            costed.append(_costed(finding, view, made[steps.window]))
        except Exception as error:  # as with a detector: unexpected data must not hide the findings
            costed.append(_without_replay(finding, f"the replay failed: {type(error).__name__}: {error}"))
    return costed


def replay_or_reason(view: RunView) -> Replay | str:
    """The replay of a view. If it is not possible, or its error is above ``MAX_REPLAY_ERROR``: the reason as text."""
    run, refusal = replay_of(view)
    if run is None:
        return refusal
    replay = Replay(view, run)
    return missed(replay.error) if replay.error > MAX_REPLAY_ERROR else replay


def _num_operations(view: RunView) -> int:
    return sum(int(operations.present.sum()) for operations in view.operations.values())


def _newest_steps_of(finding: Finding, view: RunView) -> RunView:
    """The view of the newest steps of a finding's window: as many as may be replayed, at least one."""
    most = max(1, MAX_OPERATIONS * len(view.steps) // _num_operations(view))
    return view.at_steps(view.steps[_inside(view, finding)][-most:])


def _inside(view: RunView, finding: Finding) -> Bools:
    return np.asarray((view.steps >= finding.window.first_step) & (view.steps <= finding.window.last_step))


def _costed(finding: Finding, view: RunView, replay: Replay | str) -> Costed:
    if isinstance(replay, str):
        return _without_replay(finding, replay)
    chosen = _inside(replay.view, finding)[replay.run.times.rows]
    if not chosen.any():
        return _without_replay(finding, "no step of its window has the same operations on every rank")
    change = replay.change_for(finding)
    if change is None:
        return _without_replay(finding, "no other replica does the same work")
    fix = replay.saved(change, chosen)
    inside = _inside(view, finding)
    window_s = float(view.step_ns[inside].sum()) / 1e9
    fix = replace(fix, saved_s=fix.share * window_s, window=None if inside.all() else finding.window)
    return Costed(finding=_with_gain(finding, fix), fix=fix)


def _without_replay(finding: Finding, why: str) -> Costed:
    """The finding with the cost that it has. If this is an excess, the evidence gets the reason ``why``."""
    if finding.basis is Basis.EXCESS:
        finding = replace(finding, evidence={**finding.evidence, "not_replayed": why})
    return Costed(finding=finding, fix=None)


def _with_gain(finding: Finding, fix: Fix) -> Finding:
    """The finding with the gain of its fix in place of its excess. The gain sets the severity, which never rises."""
    share, seconds = max(fix.share, 0.0), max(fix.saved_s, 0.0)
    by_cost = severity_of(share, least=finding.least_severity) if seconds >= LEAST_COST_S else finding.least_severity
    return replace(
        finding,
        seconds_lost=seconds,
        share_lost=share,
        basis=Basis.REPLAYED,
        severity=max(finding.severity, by_cost, key=list(Severity).index),
    )
