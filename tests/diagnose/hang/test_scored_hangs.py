"""Some hangs of the scoreboard, judged from each source alone, from pairs, and beside a false source."""

from pathlib import Path

import pytest

from tests.score.hang_cases import FAMILIES, simulated_case
from tests.score.hangs import INNOCENT, WRONG, judged

SEED = 8
"""A small job with two faults. `make score` judges many more seeds."""
LONG_FAMILY = "simulated: a device stops"
"""``test_sources.py`` judges such jobs without false sources."""


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=[pytest.mark.long] if each == LONG_FAMILY else []) for each in FAMILIES]
)
def test_no_verdict_is_wrong_when_the_true_sources_contradict_the_false_source(family: str, tmp_path: Path) -> None:
    """Wrong: it names an innocent rank, says that nothing is stalled, or is undecided and asks for no evidence."""
    case = simulated_case(family, SEED, tmp_path)
    assert case is not None
    rows = list(judged(case))
    assert [one for one in rows if one.outcome in WRONG and (one.refuted or one.outcome != INNOCENT)] == []
    assert {one.false for one in rows} > {"", "earlier hang", "healthy moment"}
