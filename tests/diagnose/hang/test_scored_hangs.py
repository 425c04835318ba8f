"""Some hangs of the scoreboard: no innocent rank beside a false source. Undecided verdicts ask for evidence."""

from pathlib import Path

import pytest

from tests.score.hang_cases import FAMILIES, simulated_case
from tests.score.hangs import INNOCENT, WRONG, judged


@pytest.mark.parametrize("family", FAMILIES)
def test_no_source_names_an_innocent_rank_whatever_stands_beside_it(family: str, tmp_path: Path) -> None:
    for seed in range(2):
        case = simulated_case(family, seed, tmp_path / str(seed))
        assert case is not None
        rows = list(judged(case))
        assert [one for one in rows if one.outcome in WRONG and (one.refuted or one.outcome != INNOCENT)] == []
        assert {one.false for one in rows} > {"", "earlier hang", "healthy moment"}
