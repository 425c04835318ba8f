"""A simulation is stored and loaded: the operations are equal, and the truth is not stored."""

import numpy as np
import pyarrow as pa
import pytest

from diagnose.model.load import load_view
from diagnose.model.operations import Operations
from diagnose.pipeline import diagnose_view
from diagnose.simulate.role_names import parse_roles
from diagnose.simulate.run import Simulation, simulate, view
from diagnose.simulate.store import as_run, put_simulation, samples_table, spans_table
from telemetry.errors import TakenNameError, UnreachableError
from telemetry.imports.interface import ImportedRun
from telemetry.imports.write import StoreTarget
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.queries import Runs
from telemetry.tables import SAMPLES, SPANS
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import plan


@pytest.fixture
def store(embedded: EmbeddedStore) -> Store:
    return embedded


def put(simulation: Simulation, store: Store) -> None:
    put_simulation(as_run(simulation), samples_table(simulation), StoreTarget(store))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("topology", "num_chunks"), [(Topology(dp=2, pp=4, tp=2), 1), (Topology(dp=3, pp=2), 2)])
def test_stored_simulation_loads_as_an_equal_view(
    store: Store, topology: Topology, num_chunks: int, device: str
) -> None:
    made = simulate(
        plan(
            *("slow:rank=1,factor=1.3", "gc:every=2"),
            topology=topology,
            num_chunks=num_chunks,
            device=device,  # type: ignore[arg-type]
            noise="heavy",
            first_step=100,
            checkpoint_every=5,
            clock_offset_ms=3,
            clock_drift_ppm=20,
        )
    )
    put(made, store)
    stored, direct = load_view(StoreReader(store), "simulated", 0), view(made)
    assert stored.operations.keys() == direct.operations.keys()
    for stage, one in direct.operations.items():
        for name in Operations.__slots__:
            read = getattr(stored.operations[stage], name)
            np.testing.assert_array_equal(read, getattr(one, name), err_msg=f"{name} of {stage.label}")
    for stage, work in direct.work.items():
        np.testing.assert_array_equal(stored.work[stage].ns, work.ns)
    for metric, series in direct.samples.items():
        np.testing.assert_array_equal(stored.samples[metric].values, series.values)
    np.testing.assert_array_equal(stored.steps, direct.steps)
    np.testing.assert_array_equal(stored.step_ns, direct.step_ns)
    assert (stored.topology, stored.hosts) == (direct.topology, direct.hosts)


@pytest.mark.parametrize("roles", ["rollout=4,actor=4", ""], ids=["roles", "experts"])
def test_stored_run_has_the_same_roles_sizes_and_findings_as_the_simulation(store: Store, roles: str) -> None:
    topology = Topology(dp=8) if roles else Topology.parse("dp=2,ep=4")
    fault = "tail:factor=3" if roles else "experts:factor=2"
    made = simulate(plan(fault, topology=topology, roles=parse_roles(roles), experts=not roles))
    put(made, store)
    stored, direct = load_view(StoreReader(store), "simulated", 0), view(made)
    assert [each.get("role") for each in stored.meta] == [each.get("role") for each in direct.meta]
    if direct.exchanges is not None:
        np.testing.assert_array_equal(stored.exchanges.size_bytes, direct.exchanges.size_bytes)  # type: ignore[union-attr]
    assert diagnose_view(stored).findings == diagnose_view(direct).findings != ()


def test_host_events_and_host_samples_load_as_they_were_stored(store: Store) -> None:
    faults = ("flap:host=gpu-001,seconds=2", "throttle:rank=5,factor=1.5,period=4")
    made = simulate(plan(*faults, clock_offset_ms=3, clock_drift_ppm=20))
    put(made, store)
    stored, direct = load_view(StoreReader(store), "simulated", 0), view(made)
    assert direct.fleet.series
    assert stored.fleet.events == direct.fleet.events
    assert stored.fleet.series.keys() == direct.fleet.series.keys()
    for metric, series in direct.fleet.series.items():
        for read, one in zip(stored.fleet.of(metric), series, strict=True):
            assert (read.host, read.device) == (one.host, one.device)
            for name in ("at_ns", "value", "mean"):
                np.testing.assert_array_equal(getattr(read, name), getattr(one, name), err_msg=f"{name} of {metric}")
    np.testing.assert_array_equal(stored.step_start_ns, direct.step_start_ns)
    assert stored.meta == direct.meta


def test_spans_of_each_rank_are_numbered_in_order_of_time() -> None:
    made = simulate(plan())
    spans = spans_table(made)
    assert spans.schema.equals(SPANS)
    assert spans.num_rows == made.num_spans
    rank, seq, start = (spans[name].to_numpy().astype(np.int64) for name in ("rank", "seq", "start_ns"))
    stage, op_seq = spans["stage"].to_numpy(), spans["op_seq"].to_numpy()
    for one in range(made.plan.topology.world_size):
        mine = rank == one
        assert np.array_equal(seq[mine], np.arange(mine.sum()))
        assert (np.diff(start[mine & (stage != Stage.STEP)]) >= 0).all()
        gathers = op_seq[mine & (stage == Stage.PARAMS_ALL_GATHER)]
        assert gathers.tolist() == list(range(1, made.plan.num_steps + 1))
    assert (op_seq[stage == Stage.FORWARD_COMPUTE] == 0).all()


def test_send_and_receive_of_a_transfer_name_each_other_as_peers() -> None:
    spans = spans_table(simulate(plan())).to_pylist()
    peers = {
        stage: {(row["rank"], row["peer"]) for row in spans if row["stage"] == stage}
        for stage in (Stage.FORWARD_SEND, Stage.FORWARD_RECV)
    }
    assert peers[Stage.FORWARD_SEND] == {(peer, rank) for rank, peer in peers[Stage.FORWARD_RECV]}
    assert (0, 2) in peers[Stage.FORWARD_SEND]


def test_truth_of_a_simulation_is_not_stored(store: Store) -> None:
    put(simulate(plan("slow:rank=5,factor=1.4")), store)
    (row,) = StoreReader(store).read(Runs()).to_pylist()
    assert row["num_ranks"] == 16
    assert "slow" not in row["meta"]
    assert "fault" not in row["meta"]
    assert store.query("SELECT count() AS rows FROM marks")["rows"][0].as_py() == 0


def test_store_rejects_another_simulation_with_the_same_name(store: Store) -> None:
    put(simulate(plan()), store)
    with pytest.raises(TakenNameError):
        put(simulate(plan(seed=1)), store)


class BreaksAt:
    """A target that fails when one table is written."""

    def __init__(self, store: Store, table: str) -> None:
        self._inner = StoreTarget(store)
        self._table = table
        self.max_rows = self._inner.max_rows
        self.reader = self._inner.reader

    def put(self, table: str, rows: pa.Table, run: ImportedRun) -> None:
        if table == self._table:
            raise UnreachableError("cut off", hint="again")
        self._inner.put(table, rows, run)


@pytest.mark.parametrize("table", ["host_events", "host_samples", "samples", "ranks"])
def test_interrupted_import_is_completed_by_importing_the_same_simulation_again(store: Store, table: str) -> None:
    made = simulate(plan("throttle:rank=5,factor=1.4"))
    with pytest.raises(UnreachableError):
        put_simulation(as_run(made), samples_table(made), BreaksAt(store, table))
    put(made, store)
    for name, rows in (("spans", made.num_spans), ("samples", samples_table(made).num_rows), ("ranks", 16)):
        assert store.query(f"SELECT count() AS rows FROM {name}")["rows"][0].as_py() == rows
    fleet = load_view(StoreReader(store), "simulated", 0).fleet
    assert fleet.events == made.fleet.events
    assert [len(one) for one in fleet.series.values()] == [16] * 5


def test_samples_have_the_columns_of_their_table() -> None:
    made = simulate(plan())
    table = samples_table(made)
    assert table.schema.equals(SAMPLES)
    assert table.num_rows == 4 * made.plan.num_steps


@pytest.mark.parametrize("clock", ["host", "device"])
def test_stored_sharded_run_loads_with_the_same_compute_time_and_clock(store: Store, clock: str) -> None:
    made = simulate(plan("slow:rank=1,factor=1.3", fsdp=True, clock=clock))
    put(made, store)
    stored, direct = load_view(StoreReader(store), "simulated", 0), view(made)
    assert stored.on_device == direct.on_device == (clock == "device")
    for stage, work in direct.work.items():
        np.testing.assert_array_equal(stored.work[stage].ns, work.ns)
