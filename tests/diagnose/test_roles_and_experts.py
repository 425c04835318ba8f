"""A few seeds of the scoreboard of jobs with roles and of jobs with experts."""

import pytest

from tests.score.role_cases import CASES, role_case
from tests.score.roles import num_found, num_wrong
from tests.score.verdicts import verdict

SEEDS = range(2)


@pytest.mark.parametrize("name", CASES)
def test_most_faults_are_found_and_nothing_else_is_reported(name: str) -> None:
    verdicts = [verdict(role_case(name, seed)) for seed in SEEDS]
    num_faults = sum(len(one.truth) for one in verdicts)
    assert num_found(verdicts) >= num_faults - 1
    assert num_wrong(verdicts) == 0
