"""The runs for the timing of the dashboard, in an embedded store: simulated by the command, the longest one made here.

large   12,288 ranks, 25 steps, every span: 20 million      with samples of its hosts
long    12,288 ranks, 1,000 steps, steps and forwards: 25 million
small   8 ranks, 40 steps, every span
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.host_metrics import Metric
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import Runs
from telemetry.tables import HOST_SAMPLES, SPANS
from telemetry.topology import Topology
from tests.benchmarks.large_hang import STEP as STUCK_STEP
from tests.benchmarks.large_hang import evidence_rows
from tests.deadline import until
from tests.telemetry.made_rows import insert, made

LARGE, LONG, STUCK, SMALL = "large", "long", "stuck", "small"
GRID = Topology(dp=192, pp=8, tp=8)
RANKS_A_HOST = 8
SLOW_RANK, SLOW_FACTOR = 7777, 1.3
"""The slow rank of the long run. In the stuck run, this rank is stuck."""
LARGE_STEPS, LONG_STEPS, SMALL_STEPS = 25, 1000, 40
FAULTS = (
    f"slow:rank={SLOW_RANK},factor={SLOW_FACTOR}",
    "flap:host=gpu-0100,seconds=4",
    "throttle:rank=4242,factor=1.4",
)
SLOW_FROM = 600
"""Step of the long run from which its slow rank is slow."""
STEPS_A_BLOCK = 50
STEP_NS, FORWARD_NS = 2_000_000_000, 320_000_000
LOOK_NS = 10_000_000_000
FIRST_NS = 1_790_000_000_000_000_000
MERGED_S = 600.0

Ints = npt.NDArray[np.int64]


def build(folder: Path) -> None:
    """Fill the store in ``folder``. Runs that it has are not made again."""
    for name, options in _simulated().items():
        if name not in _stored(folder):
            command = [sys.executable, "-m", "ui.cli", "simulate", "--name", name, "--store", f"embedded:{folder}"]
            subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
    made = {LONG: _make_long, STUCK: _make_stuck}
    for name in made.keys() - _stored(folder):
        _filled(folder, made[name])


def _filled(folder: Path, make: Callable[[EmbeddedStore], None]) -> None:
    store = EmbeddedStore(folder)
    try:
        make(store)
        until(lambda: _is_merged(store), seconds=MERGED_S, what="the engine to merge what it wants to")
    finally:
        store.close()


def _simulated() -> dict[str, list[str]]:
    """Names and options of the runs that the command makes."""
    grid = ["--dp", str(GRID.dp), "--pp", str(GRID.pp), "--tp", str(GRID.tp)]
    faults = [word for fault in FAULTS for word in ("--fault", fault)]
    small = ["--dp", "2", "--pp", "2", "--tp", "2", "--ranks-per-host", "2", "--fault", "slow:rank=5,factor=1.4"]
    return {
        SMALL: [*small, "--steps", str(SMALL_STEPS)],
        LARGE: [*grid, *faults, "--steps", str(LARGE_STEPS), "--clock-offset-ms", "2"],
    }


def _stored(folder: Path) -> set[str]:
    """Runs that are complete."""
    if not folder.exists():
        return set()
    store = EmbeddedStore(folder)
    try:
        store.migrate()
        return {row["run_id"] for row in StoreReader(store).read(Runs()).to_pylist() if row["num_ranks"]}
    finally:
        store.close()


def _make_long(store: EmbeddedStore) -> None:
    """Make the long run with the samples of its hosts. Its ranks come last, which make it complete."""
    for first in range(0, LONG_STEPS, STEPS_A_BLOCK):
        for table in long_spans(np.arange(first, min(first + STEPS_A_BLOCK, LONG_STEPS))):
            insert(store, "spans", table, run_id=LONG)
    for table in _host_samples(FIRST_NS, LONG_STEPS * STEP_NS):
        insert(store, "host_samples", table, run_id=LONG)
    _introduce(store, LONG)


def _make_stuck(store: EmbeddedStore) -> None:
    """Make the stuck run: steps up to the one that does not end, and the evidence."""
    for table in long_spans(np.arange(STUCK_STEP)):
        insert(store, "spans", table, run_id=STUCK)
    rows = evidence_rows(GRID, SLOW_RANK, FIRST_NS + (STUCK_STEP + 30) * STEP_NS)
    insert(store, "evidence", made("evidence", rows), run_id=STUCK)
    _introduce(store, STUCK)


def _introduce(store: EmbeddedStore, run_id: str) -> None:
    rows = [
        {
            "rank": rank,
            "host": f"gpu-{rank // RANKS_A_HOST:04d}",
            "local_rank": rank % RANKS_A_HOST,
            "dp_size": GRID.dp,
            "pp_size": GRID.pp,
            "tp_size": GRID.tp,
            "started_ns": FIRST_NS,
        }
        for rank in range(GRID.world_size)
    ]
    insert(store, "ranks", made("ranks", rows), run_id=run_id)


def _is_merged(store: EmbeddedStore) -> bool:
    return not store.query("SELECT 1 FROM system.merges").num_rows


def long_spans(steps: Ints) -> Iterator[pa.Table]:
    """Forwards, then steps of all ranks. One rank becomes slow at a step, and all steps with it."""
    draw, num_ranks = np.random.default_rng(int(steps[0])), GRID.world_size
    for number, (stage, usual_ns) in enumerate(((Stage.FORWARD_COMPUTE, FORWARD_NS), (Stage.STEP, STEP_NS))):
        duration = usual_ns * (1 + 0.02 * draw.standard_normal((len(steps), num_ranks), dtype=np.float32))
        if stage is Stage.FORWARD_COMPUTE:
            duration[steps >= SLOW_FROM, SLOW_RANK] *= SLOW_FACTOR
        start = FIRST_NS + steps[:, None] * STEP_NS + draw.integers(0, 1_000_000, duration.shape)
        count = duration.size
        told = {
            "rank": np.tile(np.arange(num_ranks), len(steps)),
            "seq": np.repeat(2 * steps + number, num_ranks),
            "stage": np.full(count, int(stage)),
            "stream": np.full(count, int(stage.stream)),
            "step": np.repeat(steps, num_ranks),
            "start_ns": start.ravel(),
            "duration_ns": duration.ravel(),
        }
        unsaid = {"microbatch": -1, "chunk": -1, "peer": -1, "cpu_ns": -1}
        columns = [
            pa.array(
                told.get(field.name, np.full(count, unsaid.get(field.name, 0))).astype(field.type.to_pandas_dtype())
            )
            for field in SPANS
        ]
        yield pa.Table.from_arrays(columns, schema=SPANS)


def _host_samples(first_ns: int, lasts_ns: int) -> Iterator[pa.Table]:
    """The pressure of each host and the throttling of each GPU, a sample every ten seconds."""
    hosts = [f"gpu-{number:04d}" for number in range(GRID.world_size // RANKS_A_HOST)]
    looks = first_ns + np.arange(0, lasts_ns, LOOK_NS)
    devices = {
        Metric.HOST_PRESSURE_CPU_NS: [""],
        Metric.GPU_THROTTLE_POWER_NS: [f"gpu{n}" for n in range(RANKS_A_HOST)],
    }
    for metric, names in devices.items():
        places = [(host, name) for host in hosts for name in names]
        share = np.random.default_rng(len(names)).uniform(0, 0.05, len(places))
        yield pa.Table.from_pydict(
            {
                "host": [host for host, _ in places for _ in looks],
                "device": [name for _, name in places for _ in looks],
                "metric": [str(metric)] * (len(places) * len(looks)),
                "at_ns": np.tile(looks, len(places)),
                "value": (share[:, None] * (looks - first_ns)).ravel(),
            },
            schema=HOST_SAMPLES,
        )


if __name__ == "__main__":
    build(Path(sys.argv[1]))
