"""A store with three runs, and a call of each operation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from telemetry.stores.embedded import EmbeddedStore
from tests.memory_store import memory_store
from tests.ui.made_hang import S, evidence_rows
from tests.ui.synthetic_run import SyntheticRun

STARTED_NS = {"stuck": 1_790_000_000 * S, "healthy": 1_790_001_000 * S, "made": 1_790_002_000 * S}
CALLS: dict[str, dict[str, Any]] = {
    "runs": {},
    "run": {"run": "made"},
    "steps": {"run": "made", "first_step": 5},
    "findings": {"run": "made"},
    "hang": {"run": "stuck"},
    "heatmap": {"run": "made", "stage": "backward-compute"},
    "timeline": {"run": "made", "step": 20, "ranks": "4-5"},
    "goodput": {"run": "made"},
    "compare": {"a": "healthy", "b": "made"},
}
"""Name of the operation -> its parameters."""


@contextmanager
def stored_runs() -> Iterator[EmbeddedStore]:
    """``made`` with the slow rank 5, ``healthy``, and ``stuck``, which rank 5 blocks: eight ranks, forty steps each."""
    with memory_store() as store:
        for name, started_ns in STARTED_NS.items():
            run = SyntheticRun(run_id=name, slow={5: 1.4} if name == "made" else {}, started_ns=started_ns)
            run.introduce(store)
            run.advance(store, 40)
            run.beat(store, at_ns=run.now_ns, ended=name != "stuck")
            if name == "stuck":
                run.leave_evidence(store, evidence_rows(run.now_ns + 35 * S))
        yield store
