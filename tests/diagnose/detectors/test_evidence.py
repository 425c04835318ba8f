from dataclasses import replace

import numpy as np

from diagnose.detectors.evidence import detect_missing_evidence
from diagnose.findings import Kind
from diagnose.pipeline import diagnose_view
from telemetry.topology import Topology
from tests.diagnose.made_view import make_view
from tests.each_case import each_case

GRID = Topology(dp=2, pp=2, tp=2)


def test_too_few_steps_are_reported_as_insufficient_evidence() -> None:
    (finding,) = detect_missing_evidence(make_view(GRID, num_steps=5))
    assert finding.kind is Kind.INSUFFICIENT_EVIDENCE
    assert "5 completed steps" in finding.summary


def test_run_without_compute_spans_is_reported_as_insufficient_evidence() -> None:
    (finding,) = detect_missing_evidence(replace(make_view(GRID), work={}))
    assert "compute spans" in finding.summary


def test_finding_for_a_one_rank_job_says_that_two_ranks_are_needed() -> None:
    (finding,) = detect_missing_evidence(make_view(Topology()))
    assert "at least two ranks" in finding.summary


def test_run_with_sufficient_evidence_yields_nothing() -> None:
    assert detect_missing_evidence(make_view(GRID)) == []


def test_insufficient_evidence_is_reported_with_exit_status_0() -> None:
    report = diagnose_view(make_view(GRID, num_steps=3))
    assert [finding.kind for finding in report.findings] == [Kind.INSUFFICIENT_EVIDENCE]
    assert report.exit_status == 0


@each_case(
    ("dp", "silent", "named"),
    [
        (2, range(5, 6), "1 of 8 ranks recorded no compute (ranks 5)"),
        (32, range(2, 128), "126 of 128 ranks recorded no compute (ranks 2-127)"),
        (32, range(0, 128, 2), "64 of 128 ranks recorded no compute (ranks 0, 2 ... 126: 64 ranks)"),
    ],
)
def test_every_rank_without_compute_is_named_or_counted(dp: int, silent: range, named: str) -> None:
    view = make_view(Topology(dp=dp, pp=2, tp=2))
    for work in view.work.values():
        work.ns[:, silent] = np.nan
    (finding,) = detect_missing_evidence(view)
    assert finding.kind is Kind.INSUFFICIENT_EVIDENCE
    assert finding.summary.startswith(named)
