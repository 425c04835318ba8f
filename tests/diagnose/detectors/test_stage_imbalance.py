import numpy as np
import pytest

from diagnose.detectors.stage_imbalance import detect_stage_imbalance
from diagnose.findings import Kind
from telemetry.topology import Topology
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

GRIDS = [Topology(dp=2, pp=2, tp=2), Topology(dp=2, pp=4, tp=1), Topology(dp=8, pp=8, tp=2)]


@pytest.mark.parametrize("topology", GRIDS, ids=str)
@over_seeds(range(10))
def test_a_balanced_pipeline_yields_nothing(topology: Topology, seed: int) -> None:
    assert detect_stage_imbalance(make_view(topology, seed=seed)) == []


@each_case("topology", GRIDS)
@each_case("factor", [1.3, 2.0])
def test_heavy_last_stage_is_named_without_its_ranks(topology: Topology, factor: float) -> None:
    last = topology.pp - 1
    (finding,) = detect_stage_imbalance(make_view(topology, heavy_stage={last: factor}))
    assert finding.kind is Kind.STAGE_IMBALANCE
    assert finding.ranks == []
    assert finding.evidence["pp"] == last
    assert finding.summary.startswith(f"pipeline stage pp{last} computes ")


@pytest.mark.parametrize("topology", GRIDS, ids=str)
@over_seeds(range(10))
def test_heavy_jitter_yields_nothing(topology: Topology, seed: int) -> None:
    assert detect_stage_imbalance(make_view(topology, jitter=1.0, seed=seed)) == []


@each_case("topology", GRIDS)
def test_one_slow_rank_does_not_make_its_stage_heavy(topology: Topology) -> None:
    assert detect_stage_imbalance(make_view(topology, slow={0: 2.0})) == []


def test_slow_stage_with_a_single_rank_is_reported_as_insufficient_evidence() -> None:
    (finding,) = detect_stage_imbalance(make_view(Topology(pp=4), slow={2: 1.5}))
    assert finding.kind is Kind.INSUFFICIENT_EVIDENCE
    assert finding.ranks == []


def test_job_without_a_pipeline_yields_nothing() -> None:
    assert detect_stage_imbalance(make_view(Topology(dp=8))) == []


def test_rank_without_compute_times_does_not_hide_a_heavy_stage() -> None:
    view = make_view(Topology(dp=2, pp=4), heavy_stage={3: 1.6})
    for work in view.work.values():
        work.ns[:, 6] = np.nan
    (finding,) = detect_stage_imbalance(view)
    assert finding.evidence["pp"] == 3
