"""Signals slow one rank of a healthy training: this rank is named, and the ranks that wait for it are victims."""

from pathlib import Path

import pytest

from tests.scenarios.slowed_from_outside import slow_down, stopped_and_continued

pytestmark = [pytest.mark.gloo, pytest.mark.long, pytest.mark.timeout(600)]


def test_rank_stopped_and_continued_by_signals_is_named_within_twenty_steps(tmp_path: Path) -> None:
    found = slow_down(5, tmp_path / "out", stopped_and_continued)
    assert found.accused == [("host-contention", [5])]
    assert found.causes == ["stopped"]
    assert {4, 7} <= found.victims
