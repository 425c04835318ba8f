"""Queries about tags, notes and saved views."""

from dataclasses import dataclass

from telemetry.annotations import Edit, Kind
from telemetry.stores.interface import Fields, among

_STATE = "at_ns, annotation_id, edit, who, text"
"""Columns that are read from the newest row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations(Fields):
    """All notes, and the newest row of each tag and view that was not removed. The newest first.

    Columns: run_id (empty: a view of all runs), kind, name, at_ns, annotation_id, edit, who, text.
    """

    kinds: tuple[str, ...] = ()
    """If empty, all kinds. The same holds for runs and names."""
    run_ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    edits: tuple[str, ...] = (Edit.SET,)
    limit: int = 100_000

    def sql(self) -> str:
        columns = ", ".join(f"newest.{number} AS {name}" for number, name in enumerate(_STATE.split(", "), 1))
        return f"""
        SELECT run_id, kind, name, {columns}
        FROM (
            SELECT run_id, kind, name, argMax(({_STATE}), (at_ns, annotation_id)) AS newest
            FROM annotations
            WHERE 1{among("kind", "kinds", self.kinds)}{among("run_id", "run_ids", self.run_ids)}
                {among("name", "names", self.names)}
            GROUP BY run_id, kind, name, if(kind = '{Kind.NOTE}', annotation_id, '')
        )
        WHERE newest.3 IN %(edits)s
        ORDER BY newest.1 DESC, newest.2 DESC LIMIT %(limit)s
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationCount(Fields):
    """Changes when a tag, a note or a view is stored. Columns: num_rows, newest_ns. No row without annotations."""

    def sql(self) -> str:
        counted = "SELECT uniqExact(annotation_id) AS num_rows, max(at_ns) AS newest_ns FROM annotations"
        return f"SELECT num_rows, newest_ns FROM ({counted}) WHERE num_rows > 0"
