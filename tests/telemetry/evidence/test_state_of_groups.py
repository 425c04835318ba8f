"""Groups of any axes on the state page, in the evidence and in the usual operations of a rank."""

import json
from pathlib import Path

import numpy as np
import pytest

import telemetry
from telemetry.evidence.collect import Standing
from telemetry.evidence.usual import RecentOperations
from telemetry.record import layout
from telemetry.record.collectives.operations import Operations
from telemetry.record.reader import RankReader
from telemetry.record.recording import RECORDER
from telemetry.record.segments import decode_spans
from telemetry.stages import SpanClock, Stage
from telemetry.topology import Topology

MESH = Topology.parse("pp=2,dp_shard=2,cp=2,tp=2")
BOTH = MESH.mask("dp_shard", "cp")


def test_evidence_names_the_axes_and_the_ranks_of_each_group(tmp_path: Path) -> None:
    session = telemetry.start("run", topology=MESH, rank=5, attempt=0, spool=tmp_path, agent=False)
    operations = Operations(RECORDER)
    for number, mask in enumerate((BOTH, 0, MESH.mask("tp"), 1 << 9)):
        operations.issue(operations.line((5, number), mask), Stage.EP_ALL_TO_ALL, 64)
    telemetry.stop()
    assert session.folder is not None
    reader = RankReader(session.folder)
    standing = Standing(folder=reader.folder, identity=reader.identity(), state=reader.live(), process="dead")
    state = json.loads(standing.at_once()[0].body)
    assert state["topology"] == {"dp": 4, "pp": 2, "tp": 2, "mesh": str(MESH)}
    rows = [(one["axis"], one["mask"], one["axes"], one["ranks"], one["peer"]) for one in state["operations"]]
    assert rows == [
        ("dp", BOTH, ["dp_shard", "cp"], [1, 3, 5, 7], -1),
        (None, 0, [], [], -1),
        ("tp", MESH.mask("tp"), ["tp"], [4, 5], -1),
        (None, 0, [], [], -1),
    ]


def test_usual_operation_of_a_group_comes_from_earlier_operations_of_that_group(tmp_path: Path) -> None:
    session = telemetry.start("run", topology=MESH, rank=5, attempt=0, spool=tmp_path, agent=False)
    operations = Operations(RECORDER)
    lines = [operations.line((5, mask), mask) for mask in (BOTH, MESH.mask("cp"))]
    for number in range(4):
        with telemetry.step(number):
            for line, size in zip(lines, (100, 200), strict=True):
                operations.end(operations.issue(line, Stage.EP_ALL_TO_ALL, size + number))
    telemetry.stop()
    assert session.folder is not None
    reader = RankReader(session.folder)
    recent = RecentOperations(reader)
    recent.read_on()
    habit, _ = recent.habits(reader.live())
    assert [one.size_bytes for one in habit.recent] == [100, 101, 102, 103]
    assert habit.usual is not None
    assert habit.usual.size_bytes == 102


@pytest.mark.parametrize(("mesh", "found"), [("dp=2,pp=2,tp=2", [64]), ("dp_shard=2,pp=2,tp=2", [])])
def test_spans_without_axes_are_used_only_in_a_plain_dp_pp_tp_mesh(tmp_path: Path, mesh: str, found: list[int]) -> None:
    """Bit 0 is the first axis of the mesh. It is not the data-parallel axis of every mesh."""
    topology = Topology.parse(mesh)
    session = telemetry.start("run", topology=topology, rank=5, attempt=0, spool=tmp_path, agent=False)
    operations = Operations(RECORDER, mesh_is_final=lambda: False)
    line = operations.line((1, 5), 1)
    operations.end(operations.issue(line, Stage.GRADS_ALL_REDUCE, 64))
    telemetry.stop()
    assert session.folder is not None
    reader = RankReader(session.folder)
    recent = RecentOperations(reader)
    recent.read_on()
    (habit,) = recent.habits(reader.live())
    assert [one.size_bytes for one in habit.recent] == found


def test_span_contains_the_clock_that_measured_it() -> None:
    records = np.zeros(3, layout.RECORD)
    records["kind"] = layout.RecordKind.SPAN
    records["text_length"] = (SpanClock.HOST, SpanClock.DEVICE, SpanClock.TRANSFER)
    assert decode_spans(records, 0, lambda at_ns: at_ns)["clock"].tolist() == [0, 1, 2]
