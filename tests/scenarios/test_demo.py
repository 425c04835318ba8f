"""The demo without a fault. ``tests/browser/test_real_training.py`` has the demo with a fault."""

from pathlib import Path

import pytest

from tests.scenarios.demo_run import DEMO_S, run_demo

pytestmark = [pytest.mark.gloo, pytest.mark.timeout(DEMO_S + 20)]


@pytest.mark.long
def test_demo_without_a_fault_has_no_findings(tmp_path: Path) -> None:
    demo = run_demo(tmp_path, "--fault", "none")
    assert demo.findings == []
    assert demo.answer["truth"]["kind"] == "none"
    assert demo.loss_falls
