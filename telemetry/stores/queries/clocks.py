"""Queries about the clocks of hosts: the input of the estimate, and its result."""

from dataclasses import dataclass

from telemetry.stores.interface import OF_ATTEMPT, Fields, among

LAST_STEP = 2**32 - 1
"""The largest possible step."""

_CLOCK = (
    "estimated_ns", "reference", "last_step", "first_ns", "last_ns", "offset_ns", "drift_ppm", "bound_ns",
    "num_events", "method", "reason",
)  # fmt: skip
_PIECE = (
    "first_step", "last_step", "first_ns", "last_ns", "offset_ns", "drift_ppm", "bound_ns", "method", "reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetingSpans(Fields):
    """Collectives and transfers in some steps, if their number in the group is a multiple of ``every``.

    Columns: stage, step, op_seq, rank, peer, start_ns, duration_ns; ordered by step, op_seq, stage, rank.
    """

    run_id: str
    attempt: int
    stages: tuple[int, ...]
    """Codes of stages. An empty tuple, here and below, means all."""
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    every: int = 1
    limit: int = 1_000_000

    def sql(self) -> str:
        return f"""
        SELECT stage, step, op_seq, rank, peer, start_ns, duration_ns FROM spans
        WHERE {OF_ATTEMPT}{among("stage", "stages", self.stages)}{among("step", "steps", self.steps)}
            {among("rank", "ranks", self.ranks)} AND op_seq > 0 AND op_seq %% greatest(%(every)s, 1) = 0
        ORDER BY step, op_seq, stage, rank, start_ns LIMIT %(limit)s
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClocks(Fields):
    """The clock offsets of hosts in windows that overlap some steps: the newest estimate of each window.

    Columns: first_step, host, estimated_ns, reference, last_step, first_ns, last_ns, offset_ns (in the middle of
    first_ns and last_ns), drift_ppm, bound_ns (-1: refused), num_events, method, reason; ordered by first_step, host,
    first_ns.
    """

    run_id: str
    attempt: int
    first_step: int = 0
    last_step: int = LAST_STEP
    hosts: tuple[str, ...] = ()
    """If empty, all are returned."""

    def sql(self) -> str:
        answer = ", ".join(f"row.{number} AS {name}" for number, name in enumerate(_CLOCK, 1))
        return f"""
        SELECT first_step, host, {answer}
        FROM (
            SELECT first_step, host, newest, arrayJoin(rows) AS row
            FROM (
                SELECT first_step, host, max(estimated_ns) AS newest, groupUniqArray(({", ".join(_CLOCK)})) AS rows
                FROM host_clocks
                WHERE {OF_ATTEMPT} AND last_step >= %(first_step)s AND first_step <= %(last_step)s
                    {among("host", "hosts", self.hosts)}
                GROUP BY first_step, host
            )
        )
        WHERE row.1 = newest
        ORDER BY first_step, host, first_ns
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockHistory(HostClocks):
    """The clocks of some hosts over many steps. Each column of steps shows its window with the widest bound. If all of
    its windows are refused, it shows a refused window.

    Columns: host, first_step, last_step, first_ns, last_ns, offset_ns (in the middle of first_ns and last_ns),
    drift_ppm, bound_ns (-1: refused), method, reason; ordered by host, first_step, first_ns.
    """

    column_steps: int = 1
    """Steps in one column. If 1, every window is returned, with several rows if the clock was set in it."""

    def sql(self) -> str:
        answer = ", ".join(f"widest.{number} AS {name}" for number, name in enumerate(_PIECE, 1))
        return f"""
        SELECT host, {answer}
        FROM (
            SELECT host, argMax(({", ".join(_PIECE)}), (bound_ns, first_step, first_ns)) AS widest
            FROM ({HostClocks.sql(self)})
            GROUP BY host, intDiv(first_step, greatest(%(column_steps)s, 1)){", first_ns" * (self.column_steps <= 1)}
        )
        ORDER BY host, first_step, first_ns
        """
