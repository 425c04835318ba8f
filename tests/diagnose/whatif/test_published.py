"""A production trace against the figures its publishers give for it (arXiv 2505.05713, trace ST)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from diagnose.findings import Kind
from diagnose.model.load import load_view
from diagnose.whatif.analysis import WhatIf
from diagnose.whatif.conclude import Conclusion, conclude
from telemetry.imports.interface import ImportOptions
from telemetry.imports.straggler_analysis import import_straggler_analysis
from telemetry.imports.write import StoreTarget, put_run
from telemetry.stores.interface import StoreReader
from tests.memory_store import memory_store

ROOT = Path(__file__).parents[3]
REAL = Path(os.environ.get("RANKSCOPE_REAL_DATA", ROOT.parent / "shared" / "data")) / "straggler-analysis"

pytestmark = pytest.mark.skipif(
    not (REAL / "trace-ST.parquet").is_file(), reason=f"no trace-ST.parquet in {REAL}; RANKSCOPE_REAL_DATA says where"
)

TOLERANCE = 1e-4
"""Of every figure: stamps are stored as whole nanoseconds."""


@pytest.fixture(scope="module")
def conclusion() -> Conclusion:
    run = import_straggler_analysis([REAL / "trace-ST.parquet"], ImportOptions(name="ST"))
    with memory_store() as store:
        put_run(run, StoreTarget(store))
        return conclude(load_view(StoreReader(store), "ST", 0))


@pytest.fixture(scope="module")
def figures(conclusion: Conclusion) -> WhatIf:
    assert conclusion.figures is not None
    return conclusion.figures


def _published(name: str) -> Any:
    return json.loads((REAL / name).read_text())


def test_the_slowdown_is_the_published_one(figures: WhatIf) -> None:
    assert figures.slowdown == pytest.approx(_published("result-ST.json")["blocking_slowdown"], rel=TOLERANCE)


def test_so_is_every_share_of_it(figures: WhatIf) -> None:
    result = _published("result-ST.json")
    assert dict(figures.by_stage) == pytest.approx(result["blocking_decompose_by_optype"], rel=TOLERANCE)
    by_pp = {str(pp): ratio for pp, ratio in enumerate(figures.by_pp)}
    assert by_pp == pytest.approx(result["blocking_decompose_by_stage"], rel=TOLERANCE)
    by_dp = {str(dp): ratio for dp, ratio in enumerate(figures.by_dp)}
    assert by_dp == pytest.approx(result["blocking_decompose_by_dp_rank"], rel=TOLERANCE)


def test_so_are_the_shares_of_the_worst_workers_and_the_last_stage(figures: WhatIf) -> None:
    assert figures.m_w == pytest.approx(_published("mw-ST.json")["Mw"], rel=TOLERANCE)
    assert figures.m_s == pytest.approx(_published("ms-ST.json")["Ms"], rel=TOLERANCE)


def test_so_is_the_slowdown_of_every_step(conclusion: Conclusion, figures: WhatIf) -> None:
    steps = zip(conclusion.steps.tolist(), (figures.step_s / figures.ideal_step_s).tolist(), strict=True)
    published = {int(step): ratio for step, ratio in _published("result-ST.json")["blocking_step_slowdown"].items()}
    assert dict(steps) == pytest.approx(published, rel=TOLERANCE)


def test_the_replay_meets_the_measured_steps_as_theirs_does(conclusion: Conclusion) -> None:
    launch = _published("result-ST.json")["launch_slowdown"]
    assert conclusion.replay_error == pytest.approx(1 - 1 / launch, rel=1e-2)


def test_the_last_stage_is_to_blame_and_no_rank(conclusion: Conclusion) -> None:
    (finding,) = conclusion.report.findings
    assert finding.kind is Kind.STAGE_IMBALANCE
    assert finding.evidence["pp"] == 3
    assert finding.suspects == ()
