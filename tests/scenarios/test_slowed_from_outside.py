"""A healthy training whose rank somebody slows from outside: that rank is named, and who waits for it a victim."""

from pathlib import Path

import pytest

from tests.scenarios.slowed_from_outside import slow_down, stopped_and_continued

pytestmark = [pytest.mark.gloo, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_rank_that_is_stopped_and_continued_is_named_within_twenty_steps(tmp_path: Path) -> None:
    found = slow_down(5, tmp_path / "out", stopped_and_continued)
    assert found.accused == [("host-contention", [5])]
    assert found.causes == ["stopped"]
    assert {4, 7} <= found.victims
