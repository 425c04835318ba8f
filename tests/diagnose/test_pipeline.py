"""One trouble, one finding: a symptom is not told beside its cause."""

import pytest

from diagnose.findings import Finding, Kind, Severity, StepWindow
from diagnose.pipeline import without_symptoms


def _finding(kind: Kind, first_step: int, last_step: int, seconds_lost: float) -> Finding:
    return Finding(
        detector="made",
        kind=kind,
        severity=Severity.WARNING,
        suspects=(),
        stage="",
        window=StepWindow(first_step=first_step, last_step=last_step),
        seconds_lost=seconds_lost,
        confidence=0.9,
        summary="",
        next_step="",
    )


DECLINE = _finding(Kind.MFU_DECLINE, 20, 59, 10.0)


def test_a_decline_is_not_told_beside_the_rank_that_causes_it() -> None:
    cause = _finding(Kind.COMPUTE_STRAGGLER, 21, 59, 9.0)
    assert without_symptoms([cause, DECLINE]) == [cause]


@pytest.mark.parametrize(
    "other",
    [_finding(Kind.COMPUTE_STRAGGLER, 0, 25, 9.0), _finding(Kind.COMPUTE_STRAGGLER, 20, 59, 1.0)],
    ids=["it was over long before", "it costs too little"],
)
def test_a_decline_that_nothing_explains_is_told(other: Finding) -> None:
    assert without_symptoms([other, DECLINE]) == [other, DECLINE]


def test_a_decline_alone_is_told() -> None:
    assert without_symptoms([DECLINE]) == [DECLINE]
