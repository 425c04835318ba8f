"""Driven jobs whose links go down: each job continues, and no node with a network is blocked."""

from pathlib import Path

import pytest

from tests.scenarios import link_trials
from tests.scenarios.drive_trials import run_trial, undisturbed_losses

pytestmark = [pytest.mark.netns, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, set[float]]:
    return undisturbed_losses(tmp_path_factory.mktemp("links") / "undisturbed", link_trials.NUM_STEPS)


@pytest.mark.parametrize("kind", link_trials.FAULTS)
def test_driven_job_continues_after_a_link_fault(kind: str, tmp_path: Path, undisturbed: dict[int, set[float]]) -> None:
    outcome = run_trial(0, kind, seed=0, folder=tmp_path, undisturbed=undisturbed)
    assert outcome.problems == []
    assert outcome.seconds is not None
