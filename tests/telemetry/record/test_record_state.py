"""The live state page shows the open spans and the pending operations of a rank."""

import signal
from pathlib import Path

import pytest

import telemetry
from telemetry.errors import UnreadableError
from telemetry.record.collectives.operations import Operations
from telemetry.record.recording import RECORDER
from telemetry.record.state_page import FILE_NAME
from telemetry.stages import Stage
from tests.scenarios.command import run_code
from tests.telemetry.recording import recorded, session


def test_state_page_lists_open_spans_from_outermost_to_innermost(tmp_path: Path) -> None:
    with session(tmp_path), telemetry.step(12), telemetry.span(Stage.FORWARD_COMPUTE):
        live = recorded(tmp_path).reader.live()
    assert [one.stage for one in live.open_spans] == [Stage.STEP, Stage.FORWARD_COMPUTE]
    assert (live.step, live.stage, live.ended) == (12, Stage.FORWARD_COMPUTE, False)


def test_state_page_after_stop_shows_no_open_span_and_an_ended_session(tmp_path: Path) -> None:
    with session(tmp_path), telemetry.step(0), telemetry.span(Stage.OPTIMIZER):
        pass
    live = recorded(tmp_path).reader.live()
    assert (live.open_spans, live.ended, live.recorded) == ((), True, 2)


def test_state_page_shows_an_issued_operation_that_has_not_completed(tmp_path: Path) -> None:
    with session(tmp_path):
        operations = Operations(RECORDER)
        line = operations.line((0, 1), 4)
        operations.end(operations.issue(line, Stage.TP_ALL_REDUCE, 64))
        hanging = operations.issue(line, Stage.TP_ALL_GATHER, 128)
        operations.wait_for(hanging)
        live = recorded(tmp_path).reader.live()
    (shown,) = live.operations
    assert (shown.mask, shown.stage, shown.issued, shown.completed) == (0b100, Stage.TP_ALL_GATHER, 2, 1)
    assert live.stage is Stage.TP_ALL_GATHER


def test_state_page_of_a_killed_process_shows_its_last_step_and_stage(tmp_path: Path) -> None:
    script = f"""
import os, signal, telemetry
telemetry.start("test", spool={str(tmp_path)!r}, agent=False)
with telemetry.step(5), telemetry.span("backward-compute"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_code(script).status == -signal.SIGKILL
    live = recorded(tmp_path).reader.live()
    assert (live.step, live.stage, live.ended) == (5, Stage.BACKWARD_COMPUTE, False)


@pytest.mark.parametrize("damage", [b"", b"garbage" * 1000])
def test_damaged_state_page_raises_a_clear_error(tmp_path: Path, damage: bytes) -> None:
    with session(tmp_path), telemetry.span(Stage.OPTIMIZER):
        pass
    reader = recorded(tmp_path).reader
    (reader.folder / FILE_NAME).write_bytes(damage)
    with pytest.raises(UnreadableError, match="state page"):
        reader.live()
