"""The operation that a rank usually issues at a position of its step, from its own records."""

from pathlib import Path

import telemetry
from telemetry.evidence.usual import Issued, RecentOperations
from telemetry.record.collectives.operations import Line
from telemetry.record.collectives.process_group import OPERATIONS
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.stages import Stage
from telemetry.topology import Topology

PROGRAM = ((Stage.TP_ALL_GATHER, 100), (Stage.TP_REDUCE_SCATTER, 200), (Stage.TP_ALL_GATHER, 300))


def _steps(line: Line, num_steps: int) -> None:
    for number in range(num_steps):
        with telemetry.step(number):
            for stage, size_bytes in PROGRAM:
                OPERATIONS.end(OPERATIONS.issue(line, stage, size_bytes))


def _operations(spool: Path) -> tuple[RecentOperations, RankReader]:
    (folder,) = find_rank_dirs(spool)
    reader = RankReader(folder)
    operations = RecentOperations(reader)
    operations.read_on()
    return operations, reader


def _usual(spool: Path) -> list[Issued | None]:
    operations, reader = _operations(spool)
    return [habit.usual for habit in operations.habits(reader.live())]


def test_usual_operation_is_the_one_at_the_same_position_of_the_step_before(tmp_path: Path) -> None:
    telemetry.start("usual", spool=tmp_path, topology=Topology(tp=2), rank=0, agent=False)
    line = OPERATIONS.line((0, 1), 4)
    _steps(line, 3)
    with telemetry.step(3):
        OPERATIONS.end(OPERATIONS.issue(line, *PROGRAM[0]))
        OPERATIONS.issue(line, *PROGRAM[2])  # the second operation is left out
        usual = _usual(tmp_path)
    telemetry.stop()
    stage, size_bytes = PROGRAM[1]
    assert Issued(seq=line.issued - len(PROGRAM), stage=stage.label, size_bytes=size_bytes) in usual


def test_rank_in_its_first_steps_has_no_usual_operation(tmp_path: Path) -> None:
    telemetry.start("usual", spool=tmp_path, topology=Topology(tp=2), rank=0, agent=False)
    line = OPERATIONS.line((0, 1), 4)
    _steps(line, 1)
    with telemetry.step(1):
        OPERATIONS.issue(line, *PROGRAM[0])
        usual = _usual(tmp_path)
    telemetry.stop()
    assert set(usual) == {None}


def test_step_durations_include_steps_recorded_before_the_first_read(tmp_path: Path) -> None:
    telemetry.start("usual", spool=tmp_path, topology=Topology(tp=2), rank=0, agent=False)
    _steps(OPERATIONS.line((0, 1), 4), 5)
    steps_ns = _operations(tmp_path)[0].steps_ns()
    telemetry.stop()
    assert len(steps_ns) == 4
    assert all(step_ns > 0 for step_ns in steps_ns)


def test_usual_operation_is_remembered_after_its_records_are_reclaimed(tmp_path: Path) -> None:
    telemetry.start("usual", spool=tmp_path, topology=Topology(tp=2), rank=0, agent=False)
    line = OPERATIONS.line((0, 1), 4)
    _steps(line, 4)
    operations, reader = _operations(tmp_path)
    telemetry.stop()
    reader.reclaim(reader.end_seq())
    operations.read_on()
    (habit,) = [one for one in operations.habits(reader.live()) if one.recent]
    assert habit.recent[-1] == Issued(seq=line.issued, stage="tp-all-gather", size_bytes=300)
    assert habit.usual == Issued(seq=line.issued - len(PROGRAM), stage="tp-all-gather", size_bytes=300)
