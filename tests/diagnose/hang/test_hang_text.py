"""The text of a verdict shows its run, because the command takes the newest run if none is given."""

import io

import pytest
from rich.console import Console

from diagnose.hang.evidence import HangEvidence
from diagnose.hang.verdict import judge
from diagnose.report.hang_as_text import hang_text


def shown(run_id: str) -> list[str]:
    console = Console(file=io.StringIO(), width=100)
    console.print(hang_text(judge(HangEvidence(world_size=0, groups=(), ranks={}, run_id=run_id, attempt=2))))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("run_id", "lines"), [("llm-7b", ["run llm-7b, attempt 2"]), ("", [])])
def test_text_shows_run_and_attempt_below_the_headline_when_the_run_is_known(run_id: str, lines: list[str]) -> None:
    assert shown(run_id) == ["nothing is stalled", *lines]
