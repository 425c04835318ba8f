"""The goodput of running jobs as a Prometheus gauge, for ``/metrics`` of a collector."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from diagnose.goodput.share import StepSums, goodput_of_sums, wall_range
from diagnose.goodput.stored import decision_in
from telemetry.errors import RankscopeError
from telemetry.stages import Stage
from telemetry.stores.interface import Query, Reader
from telemetry.stores.queries import RunDecisions, Runs, RunStageTimes, RunSteps, RunWallTimes, StoredRuns

NAME = "rankscope_goodput_ratio"
EVERY_S = 60.0
"""The store is queried at most this often, and only if somebody asks."""
MAX_RUNS = 20
RECENT_NS = 3600 * 10**9
"""Runs without data for this time are left out."""
HEAD = f"# HELP {NAME} Useful time / wall time of runs with data in the last hour.\n# TYPE {NAME} gauge\n"


class GoodputMetric:
    """A gauge with a line for each run. For any thread; blocks on queries."""

    def __init__(self, reader: Reader, wall_s: Callable[[], float] = time.time) -> None:
        self._reader = reader
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self._text = HEAD
        self._read_s = -EVERY_S

    def as_text(self) -> str:
        """The Prometheus text format. The values before, if the store does not answer."""
        with self._lock:
            now_s = self._wall_s()
            if now_s - self._read_s >= EVERY_S:
                self._read_s = now_s
                with suppress(RankscopeError):
                    self._text = HEAD + "".join(self._lines(int(now_s * 1e9)))
            return self._text

    def _lines(self, now_ns: int) -> list[str]:
        rows = self._reader.read(StoredRuns()).to_pylist()
        recent = [row["run_id"] for row in rows if now_ns - row["last_ns"] < RECENT_NS]
        names = tuple(dict.fromkeys(recent))[:MAX_RUNS]
        found = goodput_of_runs(self._reader, names) if names else {}
        return [f'{NAME}{{run="{_escaped(name)}"}} {value:.6f}\n' for name, value in sorted(found.items())]


def goodput_of_runs(reader: Reader, run_ids: tuple[str, ...]) -> Mapping[str, float]:
    """The goodput of each run that has a completed step, from five queries."""

    def ask(query: Query) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = reader.read(query).to_pylist()
        return rows

    attempts: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(ask(Runs(run_ids=run_ids)), key=lambda row: int(row["attempt"])):
        attempts.setdefault(row["run_id"], []).append(row)
    snapshots = ask(RunStageTimes(run_ids=run_ids, stage=int(Stage.CHECKPOINT_SNAPSHOT)))
    snapshot_ns = {(row["run_id"], row["attempt"]): row["mean_ns"] for row in snapshots}
    sums = {
        (row["run_id"], row["attempt"]): StepSums(
            first_step=row["first_step"],
            last_step=row["last_step"],
            steps_ns=row["steps_ns"],
            snapshot_ns=snapshot_ns.get((row["run_id"], row["attempt"]), 0.0),
        )
        for row in ask(RunSteps(run_ids=run_ids))
    }
    walls = {
        (row["run_id"], row["first_attempt"], row["last_attempt"]): row["wall_ns"]
        for row in ask(RunWallTimes(run_ids=run_ids))
    }
    decisions: dict[str, list[tuple[int, str]]] = {}
    for row in ask(RunDecisions(run_ids=run_ids)):
        decisions.setdefault(row["run_id"], []).append((row["at_ns"], decision_in(row).name))
    found = {}
    for name, rows in attempts.items():
        begin_ns, end_ns = wall_range(
            min(row["started_ns"] for row in rows),
            max(row["last_ns"] for row in rows),
            walls.get((name, rows[0]["attempt"], rows[-1]["attempt"])),
            decisions.get(name, ()),
        )
        value = goodput_of_sums((sums.get((name, row["attempt"])) for row in rows), end_ns - begin_ns)
        if value is not None:
            found[name] = value
    return found


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
