"""Tags and notes of runs, and saved views."""

from collections.abc import Hashable
from typing import Any

from diagnose.run_list import tags_of_runs
from telemetry.annotations import MAX_VIEWS, Kind
from telemetry.stores.queries import AnnotationCount, Annotations
from ui.dashboard.data.core import Reads

AGE_S = 2.0
MOST_NOTES = 100
"""At most this many notes of a run are listed: the newest ones."""


def newest_annotation(reads: Reads) -> tuple[Hashable, ...]:
    """A value that changes when a tag, a note or a view is stored."""
    count = reads.ask_all_runs(AnnotationCount(), age_s=AGE_S).to_pylist()
    return tuple(value for row in count for value in row.values())


def annotations(query: Annotations, reads: Reads) -> list[dict[str, Any]]:
    """The rows of a query. They are as new as :func:`newest_annotation`, which is part of the freshness of pages."""
    rows: list[dict[str, Any]] = reads.ask_all_runs(query, age_s=AGE_S, known=newest_annotation(reads)).to_pylist()
    return rows


def run_notes(run_id: str, reads: Reads, limit: int = MOST_NOTES) -> list[dict[str, Any]]:
    """The newest notes of a run, the newest first: at_ns, who, text."""
    rows = annotations(Annotations(kinds=(Kind.NOTE,), run_ids=(run_id,), limit=limit), reads)
    return [{name: row[name] for name in ("at_ns", "who", "text")} for row in rows]


def saved_views(run_id: str, reads: Reads) -> list[dict[str, Any]]:
    """The saved views of a run and of all runs: run_id (empty: of all runs), name, text (the address), who, at_ns."""
    of_run = (run_id,) if run_id else ()
    return [row for some in (of_run, ("",)) if some for row in annotations(_views_of(some), reads)]


def _views_of(run_ids: tuple[str, ...]) -> Annotations:
    return Annotations(kinds=(Kind.VIEW,), run_ids=run_ids, limit=MAX_VIEWS)


def run_tags(reads: Reads) -> dict[str, tuple[str, ...]]:
    """The tags of each run in alphabetical order."""
    return tags_of_runs(annotations(Annotations(kinds=(Kind.TAG,)), reads))
