"""A production trace compared with its published figures (arXiv 2505.05713, trace ST)."""

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
"""Relative tolerance of every figure. Stamps are stored as whole nanoseconds."""


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


def test_slowdown_equals_the_published_value(figures: WhatIf) -> None:
    assert figures.slowdown == pytest.approx(_published("result-ST.json")["blocking_slowdown"], rel=TOLERANCE)


def test_slowdown_by_operation_pipeline_stage_and_dp_rank_equals_the_published_values(figures: WhatIf) -> None:
    result = _published("result-ST.json")
    assert dict(figures.by_stage) == pytest.approx(result["blocking_decompose_by_optype"], rel=TOLERANCE)
    by_pp = {str(pp): ratio for pp, ratio in enumerate(figures.by_pp)}
    assert by_pp == pytest.approx(result["blocking_decompose_by_stage"], rel=TOLERANCE)
    by_dp = {str(dp): ratio for dp, ratio in enumerate(figures.by_dp)}
    assert by_dp == pytest.approx(result["blocking_decompose_by_dp_rank"], rel=TOLERANCE)


def test_shares_of_worst_workers_and_last_stage_equal_the_published_values(figures: WhatIf) -> None:
    assert figures.m_w == pytest.approx(_published("mw-ST.json")["Mw"], rel=TOLERANCE)
    assert figures.m_s == pytest.approx(_published("ms-ST.json")["Ms"], rel=TOLERANCE)


def test_slowdown_of_every_step_equals_the_published_value(conclusion: Conclusion, figures: WhatIf) -> None:
    steps = zip(conclusion.steps.tolist(), (figures.step_s / figures.ideal_step_s).tolist(), strict=True)
    published = {int(step): ratio for step, ratio in _published("result-ST.json")["blocking_step_slowdown"].items()}
    assert dict(steps) == pytest.approx(published, rel=TOLERANCE)


def test_replay_error_equals_the_published_replay_error(conclusion: Conclusion) -> None:
    launch = _published("result-ST.json")["launch_slowdown"]
    assert conclusion.replay_error == pytest.approx(1 - 1 / launch, rel=1e-2)


def test_finding_names_the_last_pipeline_stage_and_no_rank(conclusion: Conclusion) -> None:
    (finding,) = conclusion.report.findings
    assert finding.kind is Kind.STAGE_IMBALANCE
    assert finding.evidence["pp"] == 3
    assert finding.suspects == ()
