"""The log hook writes one complete line per notice, whatever its text is and however many processes write."""

import os
from multiprocessing import get_context
from pathlib import Path

import pytest

from diagnose.alerts.hooks.interface import HookError
from diagnose.alerts.hooks.log import log_line
from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.notice import Status
from tests.diagnose.alerts.made_notice import made_notice


def test_log_line_contains_time_status_labels_summary_cost_next_step_and_link(
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_hook("lines", {"type": "log"}).send([made_notice(), made_notice(status=Status.RESOLVED)])
    firing, over = capsys.readouterr().err.splitlines()
    labels = "run_id=monday attempt=0 host=gpu-003 rank=5 stage=grads-all-reduce"
    words = f"{made_notice().summary} | 12.7 s lost so far | {made_notice().next_step} | {made_notice().link}"
    assert firing == f"2026-09-21T14:13:20.25Z firing critical hung-collective {labels}: {words}"
    assert over.startswith("2026-09-21T14:14:50.25Z resolved critical hung-collective")


def test_log_line_of_a_repeated_notice_says_still_firing() -> None:
    assert " still-firing " in log_line(made_notice(repeated=True))


def test_log_line_is_printable_and_limited_in_length() -> None:
    line = log_line(made_notice(summary="a\nb\r\x1b[31m\u2028 c \udcff", next_step="x" * 100_000))
    assert line.isprintable()
    assert "a b \\x1b[31m c \\udcff" in line
    assert len(line) <= 2000


def test_log_file_is_created_again_after_it_was_moved(tmp_path: Path) -> None:
    path = tmp_path / "alerts.log"
    hook = make_hook("lines", {"type": "log", "path": str(path)})
    hook.send([made_notice()])
    hook.send([made_notice()])
    path.rename(tmp_path / "alerts.log.1")
    hook.send([made_notice()])
    assert len((tmp_path / "alerts.log.1").read_text().splitlines()) == 2
    assert len(path.read_text().splitlines()) == 1


def _write(path: str, writer: int) -> None:
    hook = make_hook("lines", {"type": "log", "path": path})
    for number in range(100):
        hook.send([made_notice(summary=f"{writer}-{number} " + str(writer) * 1500)])


def test_lines_of_several_log_writers_are_not_mixed(tmp_path: Path) -> None:
    path = str(tmp_path / "alerts.log")
    writers = [get_context("fork").Process(target=_write, args=(path, writer)) for writer in range(3)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    told = [line.partition(": ")[2] for line in Path(path).read_text().splitlines()]
    assert sorted(told) == sorted(
        log_line(made_notice(summary=f"{writer}-{number} " + str(writer) * 1500)).partition(": ")[2]
        for writer in range(3)
        for number in range(100)
    )


def test_unwritable_log_file_raises_a_hook_error_that_asks_for_a_retry(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/full")):
        with pytest.raises(HookError) as caught:
            make_hook("lines", {"type": "log", "path": str(path)}).send([made_notice()])
        assert caught.value.again
