from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from diagnose.detectors.checkpoint_slow import detect_slow_checkpoints
from diagnose.findings import Kind, Severity
from diagnose.model.view import RunView
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_operations import GRIDS, FloatArray, around, make_operations, with_operations
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

NUM_STEPS = 60
SNAPSHOT_NS = 0.1e9
WRITE_NS = 4e9
SEEDS = range(10)
ROWS = {1: [30], 2: [20, 40], 6: [5, 15, 25, 35, 45, 55]}


def saves(typical_ns: float, topology: Topology, rows: list[int], *, jitter: float = 0.05, seed: int = 0) -> FloatArray:
    """NaN in every step except those of ``rows``."""
    ns = np.full((NUM_STEPS, topology.world_size), np.nan)
    ns[rows] = around(typical_ns, (len(rows), topology.world_size), jitter=jitter, seed=seed)
    return ns


def view_of(topology: Topology, **duration_ns: FloatArray) -> RunView:
    """Steps of one second."""
    view = make_view(topology, num_steps=NUM_STEPS)
    return with_operations(replace(view, step_ns=np.full(NUM_STEPS, 1e9)), **duration_ns)


def saving(topology: Topology, rows: list[int], *, jitter: float = 0.05, seed: int = 0) -> RunView:
    return view_of(
        topology,
        checkpoint_snapshot=saves(SNAPSHOT_NS, topology, rows, jitter=jitter, seed=seed),
        checkpoint_write=saves(WRITE_NS, topology, rows, jitter=jitter, seed=seed + 1000),
    )


@each_case(("topology", "rows"), list(product(GRIDS, ROWS.values())))
@over_seeds(SEEDS)
def test_healthy_checkpoints_yield_nothing(topology: Topology, rows: list[int], seed: int) -> None:
    assert detect_slow_checkpoints(saving(topology, rows, seed=seed)) == []


@each_case(("topology", "rows"), list(product(GRIDS, ROWS.values())))
@each_case("jitter", [0.3, 0.7])
@over_seeds(SEEDS)
def test_heavy_jitter_yields_nothing(topology: Topology, rows: list[int], jitter: float, seed: int) -> None:
    assert detect_slow_checkpoints(saving(topology, rows, jitter=jitter, seed=seed)) == []


@each_case(("topology", "times"), list(product(GRIDS, [1.7, 3.0])))
@each_case("stage", ["checkpoint_snapshot", "checkpoint_write"])
@over_seeds(range(5))
def test_only_the_rank_that_saves_slowly_is_named(topology: Topology, times: float, stage: str, seed: int) -> None:
    save_ns = saves(1e9, topology, ROWS[6], seed=seed)
    culprit = int(np.random.default_rng(seed).integers(topology.world_size))
    save_ns[:, culprit] *= times
    findings = detect_slow_checkpoints(view_of(topology, **{stage: save_ns}))
    (finding,) = [one for one in findings if one.suspects]
    assert finding.kind is Kind.CHECKPOINT_SLOW
    assert finding.ranks == [culprit]
    assert finding.evidence["ratio"] == pytest.approx(times, rel=0.1)
    assert "6 checkpoints since step 105" in finding.summary
    lost_s = 6 * (times - 1.0) if stage == "checkpoint_snapshot" else 0.0
    assert finding.seconds_lost == pytest.approx(lost_s, rel=0.15)


@each_case(("topology", "times"), list(zip(GRIDS, [2.0, 1.7, 5.0], strict=True)))
@over_seeds(range(5))
def test_two_checkpoints_suffice_to_name_a_slow_rank(topology: Topology, times: float, seed: int) -> None:
    """The fewer ranks there are, the larger the slowdown must be."""
    write_ns = saves(WRITE_NS, topology, ROWS[2], seed=seed)
    write_ns[:, 2] *= times
    (finding,) = detect_slow_checkpoints(view_of(topology, checkpoint_write=write_ns))
    assert finding.ranks == [2]


@each_case(("times", "accused"), [(2.0, []), (12.0, [2])])
@over_seeds(range(5))
def test_a_single_checkpoint_names_only_a_clear_outlier(times: float, accused: list[int], seed: int) -> None:
    write_ns = saves(WRITE_NS, GRIDS[0], ROWS[1], seed=seed)
    write_ns[:, 2] *= times
    findings = detect_slow_checkpoints(view_of(GRIDS[0], checkpoint_write=write_ns))
    assert [rank for finding in findings for rank in finding.ranks] == accused


def test_clear_outlier_with_short_writes_yields_nothing() -> None:
    write_ns = saves(0.01e9, GRIDS[0], ROWS[6])
    write_ns[:, 2] *= 8.0
    assert detect_slow_checkpoints(view_of(GRIDS[0], checkpoint_write=write_ns)) == []


def test_one_slow_checkpoint_of_six_yields_nothing() -> None:
    write_ns = saves(WRITE_NS, GRIDS[0], ROWS[6])
    write_ns[25, 2] *= 3.0
    assert detect_slow_checkpoints(view_of(GRIDS[0], checkpoint_write=write_ns)) == []


def test_slow_saves_on_all_ranks_of_a_host_are_one_finding() -> None:
    write_ns = saves(2e9, GRIDS[1], ROWS[6])
    write_ns[:, 24:32] *= 2.5
    (finding,) = detect_slow_checkpoints(view_of(GRIDS[1], checkpoint_write=write_ns))
    assert finding.ranks == list(range(24, 32))
    assert finding.summary.startswith("host gpu-03 (ranks 24-31)")


def test_first_replica_with_longer_writes_of_shared_data_is_not_named() -> None:
    write_ns = saves(2e9, GRIDS[1], ROWS[6])
    write_ns[:, :8] *= 2.5
    assert detect_slow_checkpoints(view_of(GRIDS[1], checkpoint_write=write_ns)) == []


def test_pipeline_stage_with_more_data_to_write_is_not_named() -> None:
    write_ns = saves(1e9, GRIDS[0], ROWS[6])
    write_ns[:, [0, 1, 4, 5]] *= 3.0
    assert detect_slow_checkpoints(view_of(GRIDS[0], checkpoint_write=write_ns)) == []


@each_case("topology", GRIDS)
@each_case(("snapshot_ns", "severities"), [(0.3e9, []), (0.8e9, [Severity.INFO]), (5e9, [Severity.WARNING])])
def test_snapshots_that_delay_all_ranks_name_no_rank(
    topology: Topology, snapshot_ns: float, severities: list[Severity]
) -> None:
    snapshots = saves(snapshot_ns, topology, ROWS[6])  # one in ten steps of a second
    findings = detect_slow_checkpoints(view_of(topology, checkpoint_snapshot=snapshots))
    assert [finding.severity for finding in findings] == severities
    assert all(finding.suspects == () and "every 10 steps" in finding.summary for finding in findings)


def test_write_that_still_runs_when_the_next_checkpoint_begins_is_reported() -> None:
    write_ns = saves(1e9, GRIDS[0], ROWS[6], jitter=0.0)
    write_ns[ROWS[6]] *= np.array([5.0, 8.0, 12.0, 14.0, 16.0, 18.0])[:, None]  # a checkpoint every ten seconds
    (finding,) = detect_slow_checkpoints(view_of(GRIDS[0], checkpoint_write=write_ns))
    assert finding.suspects == ()
    assert "still runs when the next checkpoint begins, on 8 of 8 ranks" in finding.summary
    assert finding.evidence["checkpoints"] == 3
    assert finding.evidence["last_behind_s"] == pytest.approx(6.0)


def test_write_that_ends_before_the_next_snapshot_begins_is_not_reported() -> None:
    view = saving(GRIDS[0], ROWS[6])
    begun = np.arange(NUM_STEPS)[:, None] * 1e9 + np.zeros((1, GRIDS[0].world_size))
    write_ns = saves(9.9e9, GRIDS[0], ROWS[6], jitter=0.0)
    writes = make_operations(write_ns, begun)
    assert detect_slow_checkpoints(replace(view, operations={**view.operations, Stage.CHECKPOINT_WRITE: writes})) == []


def test_a_run_without_checkpoints_yields_nothing() -> None:
    assert detect_slow_checkpoints(make_view(GRIDS[0])) == []
