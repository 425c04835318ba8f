from pathlib import Path

import pytest

from tests.scenarios.demo_run import DEMO_S, run_demo

pytestmark = [pytest.mark.gloo, pytest.mark.timeout(DEMO_S + 20)]


def test_the_demo_names_the_rank_that_was_slowed(tmp_path: Path) -> None:
    answer = run_demo(tmp_path)
    (finding,) = answer["findings"]
    assert finding["kind"] == "compute-straggler"
    assert finding["ranks"] == [answer["truth"]["rank"]] == [5]
    assert finding["summary"].startswith("rank 5 (host ")
    assert answer["loss"]["last"] < answer["loss"]["first"]


def test_the_demo_is_silent_when_nothing_is_wrong(tmp_path: Path) -> None:
    answer = run_demo(tmp_path, "--fault", "none")
    assert answer["findings"] == []
    assert answer["truth"]["kind"] == "none"
    assert answer["loss"]["last"] < answer["loss"]["first"]
