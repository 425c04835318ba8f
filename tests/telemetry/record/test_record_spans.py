"""Recorded spans, samples and marks are read back unchanged."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import telemetry
from telemetry.record.recorder import MAX_DEPTH
from telemetry.records import SPANS_DROPPED
from telemetry.stages import Stage
from tests.telemetry.recording import recorded, session


def test_a_span_keeps_its_fields(tmp_path: Path) -> None:
    with session(tmp_path), telemetry.step(7), telemetry.span(Stage.FORWARD_SEND, 3, 1, size_bytes=4096, peer=5):
        pass
    span = recorded(tmp_path).spans[0]
    kept = [int(span[name]) for name in ("step", "stage", "stream", "microbatch", "chunk", "size_bytes", "peer")]
    assert kept == [7, Stage.FORWARD_SEND, Stage.FORWARD_SEND.stream, 3, 1, 4096, 5]


def test_stage_can_be_given_as_a_label_or_as_an_enum_member(tmp_path: Path) -> None:
    with session(tmp_path), telemetry.span("data-load"), telemetry.span(Stage.DATA_LOAD):
        pass
    assert recorded(tmp_path).stages == ["data-load", "data-load"]


def test_an_inner_span_lies_within_the_outer_one(tmp_path: Path) -> None:
    with session(tmp_path), telemetry.span(Stage.CHECKPOINT_WRITE), telemetry.span(Stage.DATA_LOAD):
        pass
    inner, outer = recorded(tmp_path).spans
    assert outer["start_ns"] <= inner["start_ns"]
    assert inner["start_ns"] + inner["duration_ns"] <= outer["start_ns"] + outer["duration_ns"]


def test_nested_spans_of_the_same_stage_are_both_recorded(tmp_path: Path) -> None:
    with session(tmp_path), telemetry.span(Stage.EVALUATION), telemetry.span(Stage.EVALUATION):
        pass
    assert recorded(tmp_path).stages == ["evaluation", "evaluation"]


def test_span_ended_by_an_exception_is_recorded_and_the_exception_propagates(tmp_path: Path) -> None:
    with session(tmp_path), pytest.raises(ZeroDivisionError), telemetry.span(Stage.OPTIMIZER):
        print(1 / 0)
    assert recorded(tmp_path).stages == ["optimizer"]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_step_interrupted_by_an_exception_is_recorded_as_a_mark_and_not_as_a_step(
    tmp_path: Path, error: type[BaseException]
) -> None:
    with session(tmp_path):
        with pytest.raises(error), telemetry.step(3), telemetry.span(Stage.OPTIMIZER):
            raise error
        with telemetry.step(4):
            pass
    found = recorded(tmp_path)
    assert [(int(span["step"]), int(span["stage"])) for span in found.spans] == [(3, Stage.OPTIMIZER), (4, Stage.STEP)]
    assert found.marks == [("step-interrupted", error.__name__)]


def test_step_left_by_break_or_return_is_recorded_as_a_step(tmp_path: Path) -> None:
    def steps() -> Iterator[int]:
        for number in range(9):
            with telemetry.step(number):
                yield number

    def first() -> int:
        with telemetry.step(0):
            return 0

    with session(tmp_path):
        first()
        for number in range(1, 9):
            with telemetry.step(number):
                if number == 2:
                    break
        for number in steps():
            if number == 3:
                break
    found = recorded(tmp_path)
    assert [int(span["step"]) for span in found.spans] == [0, 1, 2, 0, 1, 2, 3]
    assert found.marks == []


def test_state_page_shows_no_open_span_after_an_interrupted_step(tmp_path: Path) -> None:
    with session(tmp_path):
        with pytest.raises(ZeroDivisionError), telemetry.step(3):
            print(1 / 0)
        assert recorded(tmp_path).reader.live().open_spans == ()


def test_only_compute_spans_record_cpu_time(tmp_path: Path) -> None:
    with session(tmp_path):
        with telemetry.span(Stage.FORWARD_COMPUTE):
            sum(range(100_000))
        with telemetry.span(Stage.DATA_LOAD):
            pass
    compute, load = recorded(tmp_path).spans
    assert 0 < compute["cpu_ns"] <= compute["duration_ns"]
    assert load["cpu_ns"] == -1


def test_an_unknown_stage_is_dropped_and_counted(tmp_path: Path) -> None:
    with session(tmp_path) as started:
        for odd in ("no-such-stage", None, 4.5, ["forward-compute"]):
            with telemetry.span(odd):  # type: ignore[arg-type]
                pass
        assert started.stats().dropped == 4
    assert recorded(tmp_path).stages == []


@pytest.mark.parametrize("field", ["microbatch", "chunk", "size_bytes", "peer"])
def test_span_with_an_invalid_field_value_is_still_recorded(tmp_path: Path, field: str) -> None:
    with session(tmp_path):
        for odd in (10**30, "three", None):
            with telemetry.span(Stage.DATA_LOAD, **{field: odd}):
                pass
        with telemetry.span(Stage.OPTIMIZER):
            pass
    assert recorded(tmp_path).stages == ["data-load"] * 3 + ["optimizer"]


def test_spans_nested_deeper_than_the_limit_are_dropped_and_counted(tmp_path: Path) -> None:
    def descend(levels: int) -> None:
        if levels:
            with telemetry.span(Stage.DATA_LOAD):
                descend(levels - 1)

    with session(tmp_path) as started:
        descend(MAX_DEPTH + 3)
        descend(1)
        assert started.stats().dropped == 3
    assert len(recorded(tmp_path).spans) == MAX_DEPTH + 1


def test_span_that_is_created_but_not_entered_does_not_affect_other_spans(tmp_path: Path) -> None:
    with session(tmp_path):
        with telemetry.span(Stage.OPTIMIZER):
            telemetry.span(Stage.DATA_LOAD)
        with telemetry.span(Stage.OPTIMIZER):
            pass
    assert recorded(tmp_path).stages == ["optimizer", "optimizer"]


def test_record_span_stores_a_finished_span_with_the_given_fields(tmp_path: Path) -> None:
    with session(tmp_path):
        telemetry.record_span("tp-all-reduce", 1000, 250, step=4, peer=2, op_seq=9, size_bytes=64, issue_ns=900)
    (span,) = recorded(tmp_path).spans
    kept = [int(span[name]) for name in ("start_ns", "duration_ns", "step", "peer", "op_seq", "size_bytes", "issue_ns")]
    assert kept == [1000, 250, 4, 2, 9, 64, 900]


def test_samples_and_marks_are_read_back_unchanged(tmp_path: Path) -> None:
    text = "restarted after Xid 79 · " * 40
    with session(tmp_path), telemetry.step(3):
        telemetry.sample("loss", 2.75)
        telemetry.mark("restart", text)
        telemetry.mark("bare")
    found = recorded(tmp_path)
    assert found.samples == [("loss", 2.75)]
    assert found.marks == [("restart", text), ("bare", "")]


def test_long_sample_name_is_cut_at_a_character_boundary(tmp_path: Path) -> None:
    with session(tmp_path):
        telemetry.sample("ä" * 30, 1.0)
    assert recorded(tmp_path).samples == [("ä" * 12, 1.0)]


def test_invalid_samples_marks_and_steps_are_dropped_and_counted(tmp_path: Path) -> None:
    with session(tmp_path) as started:
        telemetry.sample("loss", "not a number")  # type: ignore[arg-type]
        telemetry.mark(None)
        with telemetry.step("third"):  # type: ignore[arg-type]
            pass
        assert started.stats().dropped == 3
    found = recorded(tmp_path)
    assert (len(found.spans), found.samples, [name for name, _ in found.marks]) == (0, [], [SPANS_DROPPED])


def test_garbage_collections_are_recorded_and_the_gc_hook_is_removed_at_stop(tmp_path: Path) -> None:
    with session(tmp_path):
        cycles: list[object] = []
        for _ in range(200_000):
            cycle: list[object] = []
            cycle.append(cycle)
            cycles.append(cycle)
        del cycles
        gc.collect()
    assert recorded(tmp_path).num_collections
    assert not [call for call in gc.callbacks if "GarbageWatch" in repr(call)]


def test_importing_telemetry_loads_no_heavy_package() -> None:
    heavy = {"torch", "pyarrow", "pydantic", "fastapi", "httpx", "psutil", "chdb", "pandas"}
    script = f"import sys, telemetry; print(*sorted({heavy!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == []
