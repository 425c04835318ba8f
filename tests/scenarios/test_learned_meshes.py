"""Eight real ranks on a mesh that nobody declared: it is learned, and the slowed rank is named.

`make meshes` has all cases."""

from pathlib import Path

import pytest

from tests.scenarios.hang_job import collecting
from tests.scenarios.mesh_job import SLOW, Trial
from tests.scenarios.mesh_trials import NUM_STEPS, run_trial

pytestmark = pytest.mark.gloo


def test_a_slowed_rank_is_named_on_a_mesh_that_was_learned(tmp_path: Path) -> None:
    trial = Trial(mesh="torchtitan", kind=SLOW, rank=5, factor=1.75, num_steps=NUM_STEPS, out=tmp_path / "slowed")
    with collecting(tmp_path) as collector:
        found = run_trial(trial, collector)
    assert found.holds, found.told
