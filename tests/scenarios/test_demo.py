from pathlib import Path

import pytest

from tests.scenarios.command import rankscope
from tests.scenarios.demo_run import DEMO_S, Demo, run_demo

pytestmark = [pytest.mark.gloo, pytest.mark.timeout(DEMO_S + 20)]


def test_the_demo_names_the_rank_that_was_slowed(demo_of_a_slow_rank: Demo) -> None:
    demo = demo_of_a_slow_rank
    assert demo.findings == [("compute-straggler", [5])]
    assert demo.answer["truth"]["rank"] == 5
    assert demo.answer["findings"][0]["summary"].startswith("rank 5 (host ")
    assert demo.loss_falls


def test_the_same_verdict_comes_from_its_store_and_from_its_rank_files(demo_of_a_slow_rank: Demo) -> None:
    verdict = demo_of_a_slow_rank.answer["findings"][0]["summary"]
    answer = rankscope("diagnose", "--store", f"embedded:{demo_of_a_slow_rank.out / 'store'}")
    assert (answer.status, answer.out.splitlines()[0]) == (1, verdict)


def test_the_demo_is_silent_when_nothing_is_wrong(tmp_path: Path) -> None:
    demo = run_demo(tmp_path, "--fault", "none")
    assert demo.findings == []
    assert demo.answer["truth"]["kind"] == "none"
    assert demo.loss_falls
