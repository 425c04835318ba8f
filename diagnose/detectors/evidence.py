"""The interface of detectors, what their findings share, and insufficient-evidence.

A detector is a pure function from a view to findings. It reads only the view and keeps no state. If evidence is
missing it returns no finding: ``detect_missing_evidence`` reports this once for all detectors. Register a new detector
in ``diagnose/detectors/__init__.py``.

A finding names ranks of one host together if they are most of the host. Otherwise it names a whole tensor-parallel
group, or a single rank.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from diagnose.findings import Finding, Kind, Role, Severity, Suspect
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks, name_some
from telemetry.stages import Stage
from telemetry.topology import Axis

WAITING: tuple[Axis, ...] = ("tp", "pp")
"""Axes along which neighbours of a stopped rank stop at once."""
MOST_OTHERS = 64
"""If a finding would list more ranks than this that are not initiating, they are left out."""
NAME = "evidence"
MIN_STEPS = 6
"""Least number of steps for a comparison of ranks."""
MIN_STEP_NS = 100_000
"""Shorter steps are not compared. This is about a hundred times the cost of one span."""

Detector = Callable[[RunView], list[Finding]]


def sharing_a_cause(view: RunView, ranks: list[int]) -> list[list[int]]:
    """Groups of ranks that share a cause: most ranks of a host, all of a tensor-parallel group, or a single rank.

    If ``ranks`` are all ranks of the job on one host, the host is no shared cause: each rank was compared with the
    others.
    """
    hosts: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        hosts.setdefault(view.hosts[rank], []).append(rank)
    groups: list[list[int]] = []
    for host, members in hosts.items():
        most = host and len(members) > 1 and 2 * len(members) > view.hosts.count(host)
        whole = most and len(members) < len(view.hosts)
        groups.extend([members] if whole else _by_tensor_group(view, members))
    return groups


def _by_tensor_group(view: RunView, ranks: list[int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for rank in ranks:
        group = view.topology.group(rank, along="tp")
        groups.setdefault(group[0] if set(group) <= set(ranks) else -1 - rank, []).append(rank)
    return list(groups.values())


def initiating(view: RunView, ranks: Sequence[int]) -> tuple[Suspect, ...]:
    return _suspects(view, ranks, Role.INITIATING)


def _suspects(view: RunView, ranks: Iterable[int], role: Role) -> tuple[Suspect, ...]:
    return tuple(Suspect(rank=view.number(rank), host=view.hosts[rank], role=role) for rank in ranks)


def with_victims(view: RunView, ranks: Sequence[int]) -> tuple[Suspect, ...]:
    """The initiating ranks, then those that wait for them: their tensor and pipeline groups."""
    waiting = {peer for rank in ranks for axis in WAITING for peer in view.topology.group(rank, along=axis)}
    return (*initiating(view, ranks), *_suspects(view, sorted(waiting - set(ranks)), Role.VICTIM))


def with_members(view: RunView, ranks: Sequence[int], members: Iterable[int]) -> tuple[Suspect, ...]:
    """The initiating ranks, then the other members of the affected groups.

    The others are victims. Without an initiating rank their role is unknown. More than ``MOST_OTHERS`` are left out.
    """
    others = sorted(set(members) - set(ranks))
    role = Role.VICTIM if ranks else Role.UNKNOWN
    return (*initiating(view, ranks), *_suspects(view, others if len(others) <= MOST_OTHERS else (), role))


def named(view: RunView, ranks: Sequence[int]) -> str:
    """``rank 5 (host gpu-03, dp1 pp0 tp1)``; ``host gpu-03 (ranks 4-7)`` for most of one; else ``ranks 4, 5``."""
    if len(ranks) == 1:
        return view.describe(ranks[0])
    (host, *others) = {view.hosts[rank] for rank in ranks}
    if host and not others and 2 * len(ranks) > view.hosts.count(host):
        return f"host {host} (ranks {fold_ranks(view.numbers(ranks))})"
    return f"ranks {fold_ranks(view.numbers(ranks))}"


def since(view: RunView, first_row: int) -> str:
    """`` since step 12``. Empty if ``first_row`` is one of the first rows of the window."""
    return f" since step {view.steps[first_row]}" if first_row > MIN_STEPS else ""


def detect_missing_evidence(view: RunView) -> list[Finding]:
    """At most one finding: why the other detectors cannot report. No finding for a run without completed steps."""
    if not len(view.steps):
        if len(view.profiled.steps):
            return [insufficient(view, "all completed steps were profiled, and profiled steps are not compared", _WAIT)]
        return []
    if has_tiny_steps(view):
        typical_us = float(np.median(view.step_ns)) / 1e3
        return [insufficient(view, f"steps take {typical_us:.3g} µs: too short for a comparison", _LENGTHEN)]
    if view.work and (missing := _ranks_without_work(view)):
        which = f"{len(missing)} of {view.topology.world_size} ranks recorded no compute (ranks {name_some(missing)})"
        return [insufficient(view, f"{which}: they cannot be compared", _FIND)]
    if not view.work:
        return [insufficient(view, "no compute spans are recorded: the compute time of the ranks is unknown", _RECORD)]
    if len(view.steps) < MIN_STEPS:
        return [insufficient(view, f"{len(view.steps)} completed steps are too few for a comparison of ranks", _WAIT)]
    if np.unique(view.pp_of_rank, return_counts=True)[1].max() == 1 and view.topology.pp == 1:
        return [
            insufficient(
                view, "the run has a single rank: comparison needs at least two ranks that do the same work", _PEERS
            )
        ]
    return []


def has_tiny_steps(view: RunView) -> bool:
    """Whether steps are so short that the cost of spans and scheduling noise hide every difference."""
    return len(view.steps) > 0 and float(np.median(view.step_ns)) < MIN_STEP_NS


def _ranks_without_work(view: RunView) -> list[int]:
    silent = np.logical_and.reduce([np.isnan(work.ns).all(axis=0) for work in view.work.values()])
    if Stage.ROLLOUT in view.operations:  # without sizes, rollouts are not compared
        silent &= ~view.operations[Stage.ROLLOUT].present.any(axis=(0, 1))
    return np.flatnonzero(silent).tolist()


_FIND = "check that their agents send records (`rankscope runs`, the agent's log), or import their traces too"
_LENGTHEN = "begin a step once per optimizer update: see examples/instrument_your_loop.py"
_RECORD = "record forward-compute and backward-compute: see examples/instrument_your_loop.py"
_WAIT = f"choose a window with at least {MIN_STEPS} completed steps, or wait if the run continues"
_PEERS = "compare the run with its past steps: see the overview of the dashboard"


def insufficient(view: RunView, summary: str, next_step: str, *, detector: str = NAME) -> Finding:
    """A finding that the evidence is insufficient, why, and what is needed."""
    return Finding(
        detector=detector,
        kind=Kind.INSUFFICIENT_EVIDENCE,
        severity=Severity.INFO,
        window=view.window,
        seconds_lost=0.0,
        confidence=0.0,
        summary=summary,
        next_step=next_step,
        evidence={"steps": len(view.steps), "ranks": view.topology.world_size},
    )
