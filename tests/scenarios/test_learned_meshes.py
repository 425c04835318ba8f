"""Eight real ranks on an undeclared mesh: the mesh is learned, and the slowed rank is named.

`make meshes` has all cases, with agent, collector and store.
"""

from pathlib import Path

import pytest

from tests.scenarios.mesh_job import SLOW, Trial, launch
from tests.scenarios.mesh_trials import Found, is_learned, judge_steps
from ui.cli.readers import open_spool

pytestmark = pytest.mark.gloo


def test_slowed_rank_is_named_on_a_learned_mesh(tmp_path: Path) -> None:
    trial = Trial(mesh="torchtitan", kind=SLOW, rank=5, factor=1.75, first_step=0, num_steps=14, out=tmp_path)
    launch(trial)
    found = Found(trial=trial, others=[])
    with open_spool(trial.spool) as reader:
        found.learned = is_learned(trial, reader)
        judge_steps(found, reader)
    assert found.holds, found.line
