"""Axolotl's plugin manager loads the plugin by name. A trainer with its callbacks is recorded."""

from pathlib import Path

import pytest

from telemetry.stages import Stage
from tests.telemetry.attach.adapters.framework_ranks import needs, script, train

pytestmark = [pytest.mark.gloo, pytest.mark.long, needs("axolotl")]
JOB = script("transformers_job")
STEPS = 12


@pytest.mark.parametrize("variables", [{}, {"RANKSCOPE": "1"}], ids=["without", "with"])
def test_axolotl_plugin_records_each_step_once_with_and_without_attachment(
    variables: dict[str, str], tmp_path: Path
) -> None:
    trained = train(JOB, tmp_path / "adapted", "axolotl", **variables)
    assert not trained.problems()
    assert trained.steps_of(Stage.STEP) == list(range(STEPS))
    assert [name for name, _ in trained.recorded().samples].count("loss") == STEPS
