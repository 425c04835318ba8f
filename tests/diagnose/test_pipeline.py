"""One fault gives one finding: a symptom is not reported beside its cause."""

from dataclasses import replace
from typing import Any

import pytest

from diagnose.alerts.alert import account_of
from diagnose.causes import without_symptoms
from diagnose.detectors import DETECTORS
from diagnose.findings import NOT_BY_COST, Finding, Kind, Role, Severity, StepWindow, Suspect, limit_by_cost
from diagnose.model.view import RunView
from diagnose.pipeline import diagnose_view, worst_first
from telemetry.topology import Topology
from tests.diagnose.made_operations import around, with_history
from tests.diagnose.made_view import make_view
from tests.each_case import each_case


def _finding(
    kind: Kind, first_step: int, last_step: int, seconds_lost: float, *, rank: int = -1, severity: str = "warning"
) -> Finding:
    return Finding(
        detector="made",
        kind=kind,
        severity=Severity(severity),
        suspects=(Suspect(rank=rank, host=f"host{rank // 8}", role=Role.INITIATING),) if rank >= 0 else (),
        stage="",
        window=StepWindow(first_step=first_step, last_step=last_step),
        seconds_lost=seconds_lost,
        confidence=0.9,
        summary="",
        next_step="",
    )


def test_failing_detector_is_reported_and_the_other_detectors_still_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def detect_odd_things(view: RunView) -> list[Finding]:
        raise ZeroDivisionError(view.run_id)

    monkeypatch.setattr("diagnose.pipeline.DETECTORS", (detect_odd_things, *DETECTORS))
    view = make_view(Topology(dp=2, pp=2, tp=2), slow={3: 1.5})
    kinds = {finding.kind: finding.summary for finding in diagnose_view(view).findings}
    assert set(kinds) == {Kind.COMPUTE_STRAGGLER, Kind.INSUFFICIENT_EVIDENCE}
    assert "odd-things failed: ZeroDivisionError" in kinds[Kind.INSUFFICIENT_EVIDENCE]


@each_case("kind", [kind for kind in Kind if kind not in NOT_BY_COST])
@each_case("severity", ["critical", "warning"])
def test_a_finding_whose_cost_is_printed_as_zero_is_info(kind: Kind, severity: str) -> None:
    costly = _finding(kind, 0, 59, 0.06, severity=severity)
    assert limit_by_cost(costly) == costly
    free = _finding(kind, 0, 59, 0.04, severity=severity)
    assert limit_by_cost(free) == replace(free, severity=Severity.INFO)


def test_gpu_error_without_a_cost_in_time_keeps_its_severity() -> None:
    broken = _finding(Kind.GPU_ERROR, 0, 59, 0.0, rank=3, severity="critical")
    assert limit_by_cost(broken) == broken


def _scaled(view: RunView, factor: float) -> RunView:
    work = {stage: replace(one, ns=one.ns * factor) for stage, one in view.work.items()}
    history = replace(view.history, values=view.history.values * factor)
    return replace(view, step_ns=view.step_ns * factor, work=work, history=history)


def _declining() -> RunView:
    step_ns = around(5e6, (200,), jitter=0.02, seed=0)
    step_ns[150:] *= 2.0
    return with_history(step_ns, num_steps=200)


def test_steps_of_microseconds_are_too_short_to_judge() -> None:
    view = _declining()
    assert [one.kind for one in diagnose_view(view).findings] == [Kind.MFU_DECLINE]
    report = diagnose_view(_scaled(view, 1e-3))
    assert [one.kind for one in report.findings] == [Kind.INSUFFICIENT_EVIDENCE]
    assert report.findings[0].summary.startswith("steps take 5")
    assert report.exit_status == 0


def test_mfu_decline_is_critical_only_when_it_costs_time() -> None:
    (costly,) = diagnose_view(_declining()).findings
    (free,) = diagnose_view(_scaled(_declining(), 0.1)).findings
    assert (costly.severity, free.severity) == (Severity.CRITICAL, Severity.INFO)


DECLINE = _finding(Kind.MFU_DECLINE, 20, 59, 10.0)


def test_mfu_decline_is_not_reported_beside_the_slow_rank_that_causes_it() -> None:
    cause = _finding(Kind.COMPUTE_STRAGGLER, 21, 59, 9.0)
    assert without_symptoms([cause, DECLINE]) == [cause]


@pytest.mark.parametrize(
    "other",
    [_finding(Kind.COMPUTE_STRAGGLER, 0, 25, 9.0), _finding(Kind.COMPUTE_STRAGGLER, 20, 59, 1.0)],
    ids=["it was over long before", "it costs too little"],
)
def test_mfu_decline_is_reported_when_the_other_finding_does_not_explain_it(other: Finding) -> None:
    assert without_symptoms([other, DECLINE]) == [other, DECLINE]


def test_culprit_is_listed_before_a_symptom_of_equal_severity() -> None:
    culprit = _finding(Kind.COMPUTE_STRAGGLER, 20, 59, 1.0, rank=5)
    assert worst_first([DECLINE, culprit]) == [culprit, DECLINE]
    critical = replace(DECLINE, severity=Severity.CRITICAL)
    assert worst_first([culprit, critical]) == [critical, culprit]
    unknown = _finding(Kind.INSUFFICIENT_EVIDENCE, 20, 59, 0.0)
    assert worst_first([unknown, DECLINE, culprit]) == [culprit, DECLINE, unknown]


def test_mfu_decline_alone_is_reported() -> None:
    assert without_symptoms([DECLINE]) == [DECLINE]


def test_two_symptoms_are_both_reported() -> None:
    late, slow = _finding(Kind.LATE_LAUNCH, 0, 59, 9.0), _finding(Kind.SLOW_LINK, 0, 59, 9.0)
    assert without_symptoms([late, slow]) == [late, slow]
    assert without_symptoms([late, slow, DECLINE]) == [late, slow]


def test_slow_link_is_not_reported_beside_the_host_contention_that_causes_it() -> None:
    cause, slow = _finding(Kind.HOST_CONTENTION, 0, 59, 9.0), _finding(Kind.SLOW_LINK, 0, 59, 9.0)
    assert without_symptoms([slow, cause]) == [cause]


def _unnamed(kind: Kind, *ranks: int) -> Finding:
    suspects = tuple(Suspect(rank=rank, host=f"host{rank // 8}", role=Role.UNKNOWN) for rank in ranks)
    return replace(_finding(kind, 0, 59, 9.0), suspects=suspects)


@each_case(("rank", "reported"), [(40, True), (12, False), (8, False)])
def test_slow_rank_hides_a_slow_link_without_a_suspect_only_at_its_own_host(rank: int, reported: bool) -> None:
    slow, link = _finding(Kind.COMPUTE_STRAGGLER, 0, 59, 9.0, rank=rank), _unnamed(Kind.SLOW_LINK, 8, 16)
    assert (link in without_symptoms([slow, link])) == reported


@pytest.mark.parametrize(("ranks", "reported"), [((8, 16, 24), False), ((16, 24), True)])
def test_late_launch_of_a_replica_is_not_reported_beside_the_slow_link_in_it(
    ranks: tuple[int, ...], reported: bool
) -> None:
    late, link = _unnamed(Kind.LATE_LAUNCH, *ranks), _unnamed(Kind.SLOW_LINK, 8, 16)
    found = without_symptoms([late, link])
    assert (late in found, link in found) == (reported, True)


@each_case(
    ("rank", "severity", "told"), [(3, "info", False), (3, "warning", True), (11, "info", True)],
)  # fmt: skip
def test_slightly_slow_rank_is_not_reported_beside_host_contention_on_its_host(
    rank: int, severity: str, told: bool
) -> None:
    crowd = _finding(Kind.HOST_CONTENTION, 10, 59, 9.0, rank=2)
    slow = _finding(Kind.COMPUTE_STRAGGLER, 10, 59, 1.0, rank=rank, severity=severity)
    assert (slow in without_symptoms([crowd, slow])) == told


def test_mfu_decline_is_reported_beside_a_loss_anomaly() -> None:
    loss = _finding(Kind.LOSS_ANOMALY, 0, 59, 60.0)
    assert without_symptoms([loss, DECLINE]) == [loss, DECLINE]


def test_late_launch_without_a_suspect_is_not_reported_beside_a_slow_rank() -> None:
    late, cause = _finding(Kind.LATE_LAUNCH, 0, 59, 9.0), _finding(Kind.COMPUTE_STRAGGLER, 0, 59, 9.0, rank=3)
    assert without_symptoms([late, cause]) == [cause]
    named = _finding(Kind.LATE_LAUNCH, 0, 59, 9.0, rank=5)
    assert without_symptoms([named, cause]) == [named, cause]


@pytest.mark.parametrize("role", [Role.INITIATING, Role.UNKNOWN])
def test_late_launch_is_not_reported_beside_longer_compute_of_the_same_rank(role: Role) -> None:
    """On crowded cores, longer compute costs several times its processor time."""
    late = _finding(Kind.LATE_LAUNCH, 0, 59, 9.0, severity="critical")
    late = replace(late, suspects=(Suspect(rank=3, host="host0", role=role),))
    slow, slight, later = (
        _finding(Kind.COMPUTE_STRAGGLER, first, 59, cost, rank=3) for first, cost in ((0, 3.0), (0, 0.5), (50, 9.0))
    )
    by_gc = replace(late, evidence={"late_launches": 60, "late_launches_with_gc": 40})
    assert without_symptoms([late, slow]) == [slow]
    for other in (slight, later):
        assert without_symptoms([late, other]) == [late, other]
    named = replace(by_gc, suspects=(Suspect(rank=3, host="host0", role=Role.INITIATING),))
    assert without_symptoms([named, slow]) == [named, slow]


def test_slow_rank_is_not_reported_beside_its_throttled_gpu() -> None:
    slow = _finding(Kind.COMPUTE_STRAGGLER, 20, 59, 9.0, rank=3, severity="critical")
    held_down, other = (_finding(Kind.GPU_THROTTLED, 20, 59, 9.0, rank=rank) for rank in (3, 4))
    assert without_symptoms([slow, held_down]) == [held_down]
    assert without_symptoms([slow, other]) == [slow, other]


def test_slow_rank_is_not_reported_beside_host_contention_of_known_cause() -> None:
    slow = _finding(Kind.COMPUTE_STRAGGLER, 20, 59, 9.0, rank=3, severity="critical")
    crowded = _finding(Kind.HOST_CONTENTION, 20, 59, 9.0, rank=3)
    paging = replace(crowded, evidence={"cause": "memory"})
    assert without_symptoms([slow, paging]) == [paging]
    assert slow in without_symptoms([slow, crowded])


@each_case(
    ("work", "wait", "reported"),
    [
        ({}, {}, False),
        ({"seconds_lost": 2.0}, {}, False),
        ({"seconds_lost": 1.0}, {}, True),
        ({"severity": Severity.INFO}, {}, True),
        ({}, {"evidence": {"cause": "crowded"}}, False),
        ({}, {"evidence": {"cause": "process"}}, True),
        ({}, {"suspects": tuple(Suspect(rank=rank, host="host0", role=Role.INITIATING) for rank in (2, 3))}, True),
        ({}, {"suspects": (Suspect(rank=4, host="host0", role=Role.INITIATING),)}, True),
    ],
)
def test_host_contention_is_not_reported_when_longer_compute_of_its_rank_explains_it(
    work: dict[str, Any], wait: dict[str, Any], reported: bool
) -> None:
    slow = replace(_finding(Kind.COMPUTE_STRAGGLER, 20, 59, 9.0, rank=3, severity="critical"), **work)
    waits = replace(_finding(Kind.HOST_CONTENTION, 20, 59, 9.0, rank=3), **wait)
    found = without_symptoms([slow, waits])
    assert (waits in found) == reported
    assert found


@pytest.mark.parametrize("kind", [Kind.NIC_FLAP, Kind.SLOW_LINK])
def test_slightly_slow_rank_is_not_reported_beside_a_network_fault(kind: Kind) -> None:
    slight = _finding(Kind.COMPUTE_STRAGGLER, 20, 59, 1.0, rank=9, severity="info")
    sick = _finding(kind, 20, 59, 9.0, rank=3)
    assert without_symptoms([sick, slight]) == [sick]
    certain = replace(slight, severity=Severity.WARNING)
    assert without_symptoms([sick, certain]) == [sick, certain]


def test_unlike_host_is_not_reported_beside_a_finding_with_a_suspect() -> None:
    unlike, accused = _finding(Kind.UNLIKE_HOST, 0, 59, 2.0, rank=9), _finding(Kind.NIC_FLAP, 0, 59, 9.0, rank=3)
    assert without_symptoms([unlike, accused]) == [accused]
    assert unlike in without_symptoms([unlike, DECLINE])


def test_an_alert_names_or_counts_every_rank_and_host_of_its_finding() -> None:
    suspects = tuple(Suspect(rank=rank, host=f"host{rank:03}", role=Role.INITIATING) for rank in range(0, 200, 2))
    details = account_of(replace(DECLINE, suspects=suspects)).details
    assert details["ranks"] == "0, 2 ... 198: 100 ranks"
    assert details["hosts"].endswith("and 36 more")
