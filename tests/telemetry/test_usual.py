"""What a rank usually issues at a place of its step, from its own records."""

from pathlib import Path

import telemetry
from telemetry.agent.usual import usual_operations, usual_steps_ns
from telemetry.integrations.process_group import OPERATIONS
from telemetry.record.operations import Line
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.stages import Stage
from telemetry.topology import Topology

PROGRAM = ((Stage.TP_ALL_GATHER, 100), (Stage.TP_REDUCE_SCATTER, 200), (Stage.TP_ALL_GATHER, 300))


def _steps(line: Line, num_steps: int) -> None:
    for number in range(num_steps):
        with telemetry.step(number):
            for stage, size_bytes in PROGRAM:
                OPERATIONS.end(OPERATIONS.issue(line, stage, size_bytes))


def _usual(spool: Path) -> list[tuple[Stage, int] | None]:
    (folder,) = find_rank_dirs(spool)
    reader = RankReader(folder)
    return usual_operations(reader, reader.live())


def test_it_is_what_was_issued_at_the_same_place_a_step_before(tmp_path: Path) -> None:
    telemetry.start("usual", spool=tmp_path, topology=Topology(tp=2), rank=0, agent=False)
    line = OPERATIONS.line((0, 1), "tp")
    _steps(line, 3)
    with telemetry.step(3):
        OPERATIONS.end(OPERATIONS.issue(line, *PROGRAM[0]))
        OPERATIONS.issue(line, *PROGRAM[2])  # the second is left out
        usual = _usual(tmp_path)
    telemetry.stop()
    assert PROGRAM[1] in usual


def test_a_rank_in_its_first_steps_has_no_habits(tmp_path: Path) -> None:
    telemetry.start("usual", spool=tmp_path, topology=Topology(tp=2), rank=0, agent=False)
    line = OPERATIONS.line((0, 1), "tp")
    _steps(line, 1)
    with telemetry.step(1):
        OPERATIONS.issue(line, *PROGRAM[0])
        usual = _usual(tmp_path)
    telemetry.stop()
    assert set(usual) == {None}


def test_steps_that_were_recorded_before_anybody_looked_tell_how_long_one_takes(tmp_path: Path) -> None:
    telemetry.start("usual", spool=tmp_path, topology=Topology(tp=2), rank=0, agent=False)
    _steps(OPERATIONS.line((0, 1), "tp"), 5)
    (folder,) = find_rank_dirs(tmp_path)
    steps_ns = usual_steps_ns(RankReader(folder))
    telemetry.stop()
    assert len(steps_ns) == 4
    assert all(step_ns > 0 for step_ns in steps_ns)
