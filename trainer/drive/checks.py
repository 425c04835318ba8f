"""The results of node checks: which node failed, and which is slow compared with the others.

All nodes of a round are checked at the same time, so that they share what disturbs them.
"""

from collections.abc import Mapping
from statistics import median

from telemetry.units import with_unit
from trainer.drive.records import CheckReport, Measured

MOST_NAMED = 3
"""A reason names at most this many results."""
NOT_COMPARED = frozenset({"disk_write_gb_s", "shared_memory_free_gib"})
"""Measured values that are not compared between nodes. Nodes may share a disk, and what other programs write or hold
changes both values."""


def why_failed(report: CheckReport) -> str:
    """Why a node failed its checks; empty if it did not."""
    if report.problem:
        return report.problem
    failed = [f"{result.check} {result.subject}: {result.detail}" for result in report.results if result.failed]
    return "; ".join(failed[:MOST_NAMED])


def slow_nodes(reports: Mapping[str, CheckReport], ratio: float) -> dict[str, str]:
    """The nodes that are slow in a check, with the reason.

    A value is slow if the median of the other nodes is more than ``ratio`` times as large. With two nodes the faster
    one is never slow. No node is slow in a check that did not finish on most nodes.
    """
    values = {node: _values(report) for node, report in reports.items()}
    found: dict[str, list[str]] = {}
    for node, own in values.items():
        for name, result in own.items():
            others = [other[name].value for peer, other in values.items() if peer != node and name in other]
            usual = median([value for value in others if value is not None] or [0.0])
            if result.value is not None and usual > ratio * result.value:
                reason = (
                    f"{result.check} {result.subject}: {_shown(result)}, others {with_unit(usual, result.measured)}"
                )
                found.setdefault(node, []).append(reason)
    return {node: "; ".join(reasons[:MOST_NAMED]) for node, reasons in found.items()}


def _values(report: CheckReport) -> dict[str, Measured]:
    """The results that are compared between nodes, by check and subject."""
    return {
        f"{result.check} {result.subject}": result
        for result in report.results
        if result.value is not None and not result.failed and result.measured not in NOT_COMPARED
    }


def _shown(result: Measured) -> str:
    return with_unit(result.value, result.measured) if result.value else result.detail
