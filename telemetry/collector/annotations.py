"""Checks tags, notes and saved views, and stores them as rows. The log of the collector has a line for each.

command, dashboard --POST /v1/annotations, a token that may write--> annotations --query--> command, pages
"""

import secrets
import time
from dataclasses import dataclass

import pyarrow as pa

from telemetry.annotations import MAX_TAGS, MAX_VIEWS, Edit, Kind
from telemetry.collector.finding_actions import Clock
from telemetry.errors import NotStoredError, UsageError
from telemetry.printable import log, printable
from telemetry.stores.interface import Reader, Store
from telemetry.stores.queries import Annotations, RunGrids
from telemetry.tables import ANNOTATIONS
from telemetry.wire.annotation import Annotation

MOST = {Kind.TAG: MAX_TAGS, Kind.VIEW: MAX_VIEWS}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationLog:
    """Checks and stores annotations. May be used by any thread."""

    store: Store
    reader: Reader
    clock_ns: Clock = time.time_ns

    def accept(self, annotation: Annotation) -> str:
        """Store an annotation. Returns its id.

        Raises:
            NotStoredError: there is no such run, or no tag or view to remove.
            UsageError: the run has too many tags or views.
            UnreachableError: the store does not answer.
        """
        run_id, kind, edit = annotation.run_id, annotation.kind, annotation.edit
        if run_id and not self.reader.read(RunGrids(run_ids=(run_id,))).num_rows:
            raise NotStoredError(f"no run {printable(run_id)} is stored", hint="`rankscope runs` lists all runs")
        annotation_id = secrets.token_hex(8)
        row = {
            "run_id": run_id,
            "kind": str(kind),
            "name": annotation.name,
            "at_ns": self.clock_ns() if kind is Kind.NOTE else self._checked_time(annotation),
            "annotation_id": annotation_id,
            "edit": str(edit),
            "who": annotation.who,
            "text": annotation.text,
        }
        self.store.insert("annotations", pa.Table.from_pylist([row], schema=ANNOTATIONS))
        what = f"{kind} {annotation.name!r}" if annotation.name else str(kind)
        of = f"run {printable(run_id)}" if run_id else "all runs"
        log(f"rankscope collect: {edit} {what} of {of} by {annotation.who!r}")
        return annotation_id

    def _checked_time(self, annotation: Annotation) -> int:
        """The time of a tag or view: later than earlier rows of its name, also if the clock was set back.

        Raises:
            NotStoredError, UsageError: as :meth:`accept`.
        """
        kind, run_ids = annotation.kind, (annotation.run_id,)
        newest = Annotations(kinds=(kind,), run_ids=run_ids, names=(annotation.name,), edits=tuple(Edit), limit=1)
        before = self.reader.read(newest).to_pylist()
        is_set = any(row["edit"] == Edit.SET for row in before)
        if annotation.edit is Edit.REMOVE and not is_set:
            raise NotStoredError(f"there is no {kind} {annotation.name!r}", hint="check the name")
        if annotation.edit is Edit.SET and not is_set:
            others = self.reader.read(Annotations(kinds=(kind,), run_ids=run_ids, limit=MOST[kind])).num_rows
            if others >= MOST[kind]:
                of = "a run" if annotation.run_id else "all runs together"
                raise UsageError(f"{of} can have at most {MOST[kind]} {kind}s", hint=f"remove a {kind} first")
        return max([self.clock_ns(), *(int(row["at_ns"]) + 1 for row in before)])
