"""How much the pages may load at once, and which requests their server accepts besides pages."""

from dataclasses import dataclass

from ui.dashboard.records import GpuPrice


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """Settings of ``Reads``."""

    max_cells: int = 240_000
    """A heat map of up to this many ranks times steps is queried step by step. The store pools a larger heat map."""
    max_own_operations: int = 1_000_000
    """Largest number of operations that are loaded to show compute time as the detectors use it."""
    max_lane: int = 2_000
    """Largest number of spans of one rank and stream that are loaded. If there are more, the longest are loaded."""
    max_operations: int = 6_000_000
    """Largest number of operations of one analysis. It takes seconds and about a gigabyte."""
    rank_steps_at_once: int = 20_000
    """A page waits for the detectors if ranks times steps are at most this many: about half a second."""
    ranks_judged_at_once: int = 1024
    """A page waits for the verdict of a job with at most this many ranks."""
    gpu_price: GpuPrice | None = None
    takes_orders: bool = False
    """Whether the server of the pages accepts requests for profiles."""
    takes_actions: bool = False
    """Whether the server of the pages accepts actions on findings."""
    perfetto: str = ""
    """The address of Perfetto's page. Empty if pages do not open it."""
    has_sql: bool = False
    """Whether the server of the pages runs SQL."""


USUAL = ReadSettings()
