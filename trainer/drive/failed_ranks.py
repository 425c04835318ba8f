"""Derives the kind of a fault, and the nodes that may be its cause, from the exit statuses of failed ranks. Does the
same for ranks that could not be started, and for ranks that a signal has stopped."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.drive.records import Ended, Report
from trainer.rank_status import FAILED, NOT_FINITE, NOT_FINITE_TEXT, causing, is_failure, manner

RANK_FAILED, RANK_STOPPED, STEP_NOT_FINITE = "rank-failed", "rank-stopped", "not-finite"
NOT_STARTED, NO_CHECKPOINT = "not-started", "no-usable-checkpoint"
STOPPED_S = 15.0
"""A rank is at fault if it is stopped for longer than this while others run. The watcher usually finds the hang
first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why an attempt failed."""

    fault: str
    """Name of the decision."""
    reason: str
    nodes: tuple[str, ...]
    """The suspected nodes. Empty if no node is more suspected than the others."""


def failed_ranks(reports: Sequence[Report]) -> list[Ended]:
    """The ranks that failed."""
    return [rank for report in reports for rank in report.ended if is_failure(rank.status)]


def is_not_finite(failed: Sequence[Ended]) -> bool:
    """Whether ranks ended after a step that is not finite."""
    return any(rank.status == NOT_FINITE for rank in failed)


def cause_of(reports: Sequence[Report]) -> Cause:
    """The cause, from the reports of all members. At least one rank has failed.

    NaN on one rank is on all ranks after the sum of the gradients, so no node is more suspected than the others.
    """
    failed = failed_ranks(reports)
    if is_not_finite(failed):
        step = max(report.step for report in reports)
        return Cause(fault=STEP_NOT_FINITE, reason=f"{NOT_FINITE_TEXT}; ranks ended in step {step}", nodes=())
    statuses = {rank.rank: rank.status for rank in sorted(failed, key=lambda rank: rank.at_s)}
    causes = causing(statuses)
    if all(status == FAILED for status in statuses.values()):
        causes = causes[:1]  # the other ranks may have failed because they lost a peer
    nodes = tuple(report.node for report in reports if any(rank.rank in causes for rank in report.ended))
    reasons = {rank.rank: rank.reason for rank in failed}
    words = ", ".join(f"rank {rank} {manner(statuses[rank], reasons[rank])}" for rank in causes)
    return Cause(fault=RANK_FAILED, reason=f"{words} on {', '.join(nodes)}", nodes=nodes)


def cause_of_errors(reports: Sequence[Report]) -> Cause:
    """The cause, from the reports of nodes that could not start their ranks. No node is suspected if there is no
    checkpoint to continue with."""
    lacking = [report for report in reports if report.no_checkpoint]
    if lacking:
        return Cause(fault=NO_CHECKPOINT, reason=lacking[0].error, nodes=())
    first = reports[0]
    nodes = tuple(report.node for report in reports)
    return Cause(fault=NOT_STARTED, reason=f"node {first.node} cannot start ranks: {first.error}", nodes=nodes)


def cause_of_stop(reports: Sequence[Report]) -> Cause | None:
    """The cause, if a signal has stopped some ranks. None if it has stopped all ranks: a person paused the job."""
    stopped = {rank for report in reports for rank, seconds in report.stopped_s.items() if seconds > STOPPED_S}
    if not stopped or all(rank in report.stopped_s for report in reports for rank in report.pids):
        return None
    nodes = tuple(report.node for report in reports if stopped & report.stopped_s.keys())
    ranks = ", ".join(f"rank {rank}" for rank in sorted(stopped))
    reason = f"a signal, such as SIGSTOP, has stopped {ranks} on {', '.join(nodes)}"
    return Cause(fault=RANK_STOPPED, reason=reason, nodes=nodes)
