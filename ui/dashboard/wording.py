"""Numbers, times and ranks as text."""

import math
from collections.abc import Sequence
from datetime import datetime

from diagnose.findings import kind_in_words
from diagnose.ranges import fold_ranks
from telemetry.stages import Stage, StageClass
from telemetry.topology import Topology
from ui.dashboard.view_state import Group

NS_PER_S = 1_000_000_000
NO_BREAK_SPACE = "\u00a0"
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
SHORT_S = 600
"""Durations shorter than this are shown with seconds."""
LAST_DIGITS_NS = ((1e3, 1.0), (1e6, 1e3), (1e8, 1e5), (1e9, 1e6), (math.inf, 1e7))
"""The last digit of a :func:`duration` below a limit."""


def duration(ns: float) -> str:
    """A duration as text: ``812 µs``, ``40.2 ms``, ``1.25 s``."""
    if ns < 1e3:
        return f"{ns:.0f} ns"
    if ns < 1e6:
        return f"{ns / 1e3:.0f} µs"
    if ns < 1e9:
        return f"{ns / 1e6:.1f} ms" if ns < 1e8 else f"{ns / 1e6:.0f} ms"
    return f"{ns / 1e9:.2f} s"


def displayed_ns(ns: float) -> float:
    """The value that :func:`duration` shows, for differences that must fit the shown numbers."""
    digit_ns = next(digit_ns for below_ns, digit_ns in LAST_DIGITS_NS if ns < below_ns)
    return round(ns / digit_ns) * digit_ns


def named_kind(kind: str) -> str:
    """The kind of a finding in words, with the name that commands use: ``slow rank (compute-straggler)``."""
    words = kind_in_words(kind)
    return kind if words == kind else f"{words} ({kind})"


def long_duration(seconds: float) -> str:
    """A duration as text: ``45 s``, ``1 min 27 s``, ``12 min``, ``3 h 20 min``, ``4 d 2 h``."""
    whole = max(0, round(seconds))
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < SHORT_S:
        return f"{whole // MINUTE_S} min" + f" {whole % MINUTE_S} s" * (whole % MINUTE_S > 0)
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min"
    if whole < DAY_S:
        return f"{whole // HOUR_S} h {whole % HOUR_S // MINUTE_S} min"
    return f"{whole // DAY_S} d {whole % DAY_S // HOUR_S} h"


def size(num_bytes: int) -> str:
    """A size as text: ``512 B``, ``2.0 MiB``."""
    amount = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError(num_bytes)


def stamp(ns: int) -> str:
    """Date and time in the time zone of the server."""
    return datetime.fromtimestamp(ns / NS_PER_S).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock(ns: int) -> str:
    """Time of day in the time zone of the server."""
    return datetime.fromtimestamp(ns / NS_PER_S).astimezone().strftime("%H:%M:%S")


def local_ms(ns: int) -> float:
    """Milliseconds that plotly, which has no time zones, shows as time of the server."""
    offset = datetime.fromtimestamp(ns / NS_PER_S).astimezone().utcoffset()
    return ns / 1e6 + (offset.total_seconds() * 1e3 if offset else 0.0)


def time_zone(ns: int) -> str:
    """The name of the time zone of the server: ``CET``."""
    return datetime.fromtimestamp(ns / NS_PER_S).astimezone().tzname() or ""


def from_local_ms(local: float) -> int:
    """Nanoseconds since the epoch: the inverse of :func:`local_ms`, except for an hour at a change of the clocks.

    Raises:
        ValueError, OverflowError, OSError: there is no such time.
    """
    shift_ms = local_ms(round(local * 1e6)) - local
    return round((local - shift_ms) * 1e6)


def capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def count(number: int, noun: str) -> str:
    """A number with a noun: ``1 rank``, ``8 ranks``, ``12,288 ranks``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def ranks_text(ranks: Sequence[int], limit: int = 12, *, counted: bool = True) -> str:
    """Ranks as text, such as ``0-3, 5``: at most ``limit`` ranges, or one more if only one would be left out.

    ``counted`` adds the number of ranks if some are left out.
    """
    ranges = fold_ranks(ranks).split(", ")
    if len(ranges) <= limit + 1:
        return ", ".join(ranges)
    return ", ".join(ranges[:limit]) + (f" … ({count(len(ranks), 'rank')})" if counted else " …")


def class_name(stage_class: StageClass) -> str:
    """The name of a class of stages: ``compute``, ``communication``."""
    return stage_class.name.lower()


def compute_beside(stage: Stage) -> Stage:
    """The compute stage beside which parameters are gathered or gradients are reduced."""
    return Stage.FORWARD_COMPUTE if stage is Stage.PARAMS_ALL_GATHER else Stage.BACKWARD_COMPUTE


def during_compute(stage: Stage) -> str:
    """How to read the time of a collective that runs beside compute, on all pages."""
    return (
        f"{stage.label} runs during compute, so its duration is not waiting time. To find the slow rank, compare "
        f"the compute time of {compute_beside(stage).label}."
    )


GROUP_NAMES = {
    Group.PP: "pipeline",
    Group.DP: "replicas",
    Group.CP: "context group",
    Group.EP: "expert group",
    Group.TP: "tensor group",
}


def group_text(group: Group, rank: int, topology: Topology) -> str:
    """The group of a rank as text: ``expert group of rank 5``, ``replicas of rank 5 (dp x ep)``. ``group`` must not be
    ``Group.ALL``."""
    axes = f" ({topology.replica_axes})" if group is Group.DP and topology.replica_axes != "dp" else ""
    return f"{GROUP_NAMES[group]} of rank {rank}{axes}"


def axes_text(axis: str, topology: Topology) -> str:
    """An axis of exposed communication with its names in the mesh: ``dp_shard x cp`` for ``dp``."""
    return topology.replica_axes if axis == "dp" else axis


def degrees(topology: Topology) -> str:
    """The mesh in its own order: ``pp 2 x dp_shard 4 x tp 8``."""
    return " x ".join(f"{name} {degree}" for name, degree in topology.mesh)


def worker_name(topology: Topology, dp: int, pp: int) -> str:
    """A tensor group, in the order of the mesh: ``dp1 pp0``, ``pp0 dp_shard1``, or ``dp1`` without a pipeline."""
    indices = topology.coordinates(int(topology.grid[dp, pp, 0]))
    left_out = ("tp",) if topology.pp > 1 else ("tp", "pp")
    return " ".join(f"{name}{index}" for name, index in indices.items() if name not in left_out) or f"dp{dp}"


def unbroken(text: str) -> str:
    """``text`` with no-break spaces: a number stays on one line with its name and unit."""
    return text.replace(" ", NO_BREAK_SPACE)
