"""The part of an address that only timelines use: ``num-steps=4&counters=gpu&rank-order=end&table=-duration``.

``a-step=7``: the step of A on the compare page.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ui.dashboard.address_fields import ReadField, whole_number

MAX_STEPS = 10
"""Largest number of steps in one timeline."""
MAX_PAGE = 1_000_000
MAX_STEP = 2**32 - 1


class Counters(StrEnum):
    """Which samples are drawn below the lanes of each rank."""

    NONE = "none"
    GPU = "gpu"
    NETWORK = "network"
    HOST = "host"
    ALL = "all"


class RankOrder(StrEnum):
    """The order of the rows."""

    RANK = "rank"
    HOST = "host"
    COMPUTE = "compute"
    """The longest compute time first."""
    END = "end"
    """The latest end of the step first."""


class SpanColumn(StrEnum):
    """The columns of the table of spans."""

    RANK = "rank"
    HOST = "host"
    STAGE = "stage"
    STEP = "step"
    MICROBATCH = "microbatch"
    CHUNK = "chunk"
    START = "start"
    DURATION = "duration"
    CPU = "cpu"
    SIZE = "size"
    PARTNER = "partner"
    NUMBER = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """The order of the table of spans, and its page. In the address: ``-duration`` for descending durations."""

    column: SpanColumn = SpanColumn.START
    is_descending: bool = False
    page: int = 1

    @property
    def text(self) -> str:
        return "-" * self.is_descending + self.column.value


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """Choices of the timeline besides the common selection."""

    num_steps: int = 1
    """Neighbouring steps side by side."""
    counters: Counters = Counters.NONE
    order: RankOrder = RankOrder.RANK
    table: TableView | None = None
    """None if the table of spans is hidden."""
    a_step: int | None = None
    """The step of A on the compare page. None for a typical step. The step of B is the step of the selection."""

    def fields(self) -> dict[str, object]:
        """Name -> value of each field of the address. A field whose value is None is not in the address."""
        return {
            "num-steps": None if self.num_steps == 1 else self.num_steps,
            "counters": None if self.counters is Counters.NONE else self.counters.value,
            "rank-order": None if self.order is RankOrder.RANK else self.order.value,
            "table": self.table and self.table.text,
            "a-step": self.a_step,
            "table-page": self.table.page if self.table and self.table.page > 1 else None,
        }


ONE_STEP = TimelineView()


def read_timeline_view(read: ReadField) -> TimelineView:
    """The choices in an address."""
    table, page = read("table", _table, None), read("table-page", lambda text: whole_number(text, 1, MAX_PAGE), 1)
    return TimelineView(
        num_steps=read("num-steps", lambda text: whole_number(text, 1, MAX_STEPS), 1),
        counters=read("counters", Counters, Counters.NONE),
        order=read("rank-order", RankOrder, RankOrder.RANK),
        table=table and replace(table, page=page),
        a_step=read("a-step", lambda text: whole_number(text, 0, MAX_STEP), None),
    )


def _table(text: str) -> TableView:
    return TableView(column=SpanColumn(text.removeprefix("-")), is_descending=text.startswith("-"))


def with_num_steps(view: TimelineView, value: Any) -> TimelineView:
    """The view after the control was set. A value outside the limits is replaced by the nearest limit.

    Raises:
        ValueError: ``value`` is not a number.
    """
    return replace(view, num_steps=1 if value in ("", None) else min(max(1, int(value)), MAX_STEPS))
