"""A driven run in a store: a rank is killed, a node is missing for a while, the job continues from a checkpoint."""

from telemetry.host_metrics import Happening
from telemetry.stores.interface import Store
from telemetry.tables import ENDED_FAILED, ENDED_WELL
from telemetry.topology import Topology
from tests.telemetry.made_rows import insert, made
from tests.ui.synthetic_run import SyntheticRun

S = 1_000_000_000
NAME = "driven"
EPOCH_NS = 1_790_000_000 * S
NUM_RANKS = 4
LOST_STEPS = 4


def store_driven_run(store: Store, name: str = NAME) -> None:
    """60 steps in attempt 0, a fault, 40 s without enough nodes, and 40 steps in attempt 1, 4 of them repeated."""
    first = _attempt(name, 0, EPOCH_NS + 4 * S)
    _decide(store, name, 0, EPOCH_NS, "check", "check node-a, node-b")
    _decide(store, name, 0, EPOCH_NS + 3 * S, "admit", "it passed its checks", node="node-a")
    _decide(store, name, 0, EPOCH_NS + 3 * S, "start", "attempt 0 on node-a, node-b")
    first.introduce(store)
    first.advance(store, 60)
    died_ns = first.now_ns + S // 10
    mark = {"rank": 1, "seq": 10**6, "step": 60, "at_ns": died_ns, "name": "step-interrupted", "text": "RuntimeError"}
    insert(store, "marks", made("marks", [mark]), run_id=name)
    _end(store, name, 0, died_ns + S, failed=True)
    fault_ns = died_ns + 2 * S
    _decide(store, name, 0, fault_ns, "rank-failed", "rank 3 was killed by SIGKILL on node-b", node="node-b")
    _decide(store, name, 0, fault_ns + S, "check", "check node-b, node-a")
    _decide(store, name, 0, fault_ns + 4 * S, "block", "its GPU is gone", node="node-b")
    _decide(store, name, 0, fault_ns + 5 * S, "wait", "1 of 2 nodes are ready")
    _decide(store, name, 0, fault_ns + 45 * S, "check", "check node-c, node-a")
    _decide(store, name, 0, fault_ns + 48 * S, "admit", "it passed its checks", node="node-c")
    _decide(store, name, 1, fault_ns + 48 * S, "start", "attempt 1 on node-a, node-c")
    second = _attempt(name, 1, fault_ns + 49 * S)
    second.introduce(store)
    second.advance_from(60 - LOST_STEPS)
    second.advance(store, 40)
    _end(store, name, 1, second.now_ns + S // 2, failed=False)
    _decide(store, name, 1, second.now_ns + S, "done", "all steps are done after attempt 1")


def _attempt(name: str, attempt: int, started_ns: int) -> SyntheticRun:
    return SyntheticRun(
        run_id=name, attempt=attempt, topology=Topology(dp=NUM_RANKS), slow={}, started_ns=started_ns, seed=attempt
    )


def _end(store: Store, name: str, attempt: int, at_ns: int, *, failed: bool) -> None:
    ended = ENDED_FAILED if failed else ENDED_WELL
    beats = [{"rank": rank, "at_ns": at_ns, "beat_ns": at_ns, "ended": ended} for rank in range(NUM_RANKS)]
    insert(store, "heartbeats", made("heartbeats", beats), run_id=name, attempt=attempt)


def _decide(
    store: Store, run_id: str, attempt: int, at_ns: int, decision: str, reason: str, *, node: str = "driver"
) -> None:
    row = {"host": node, "device": "driver", "at_ns": at_ns, "name": Happening.DRIVER, "text": f"{decision}: {reason}"}
    insert(store, "host_events", made("host_events", [row]), run_id=run_id, attempt=attempt)
