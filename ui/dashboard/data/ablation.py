"""The table of the ablation that a run belongs to, cached until new data arrives."""

from diagnose.ablation import ABLATION, SEPARATOR, Ablation, load_ablation
from telemetry.errors import UnknownRunError
from telemetry.labels import labels_in
from ui.dashboard.data.core import Reads
from ui.dashboard.records import RunSummary


def ablation_of(run: RunSummary, reads: Reads) -> Ablation | None:
    """The table of the ablation of ``run``. None if it belongs to none, or if no run of it has completed enough
    steps."""
    name = labels_in(run.meta).get(ABLATION)
    if name is None:
        return None
    return reads.kept(("ablation", name), lambda: _loaded(name, run, reads), _version(name, reads))


def _loaded(name: str, run: RunSummary, reads: Reads) -> Ablation | None:
    try:
        return load_ablation(reads.reader_of(run), name)
    except UnknownRunError:
        return None


def _version(name: str, reads: Reads) -> tuple[int, int]:
    """A value that changes when a run of the ablation starts or reports."""
    mine = [row["last_ns"] for row in reads.run_rows() if row["run_id"].startswith(name + SEPARATOR)]
    return len(mine), max(mine, default=0)
