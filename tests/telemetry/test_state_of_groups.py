"""Groups of any axes on the state page, in the evidence, and in what a rank usually does."""

import json
from pathlib import Path

import numpy as np

import telemetry
from telemetry.agent.rank_state import state_body
from telemetry.agent.usual import RecentOperations
from telemetry.record import layout
from telemetry.record.decode import decode_spans
from telemetry.record.reader import RankReader
from telemetry.stages import SpanClock, Stage
from telemetry.tables import GROUP_BASE
from telemetry.topology import Topology

MESH = Topology.parse("pp=2,dp_shard=2,cp=2,tp=2")
BOTH = MESH.mask("dp_shard", "cp")


def show(folder: Path, row: int, mask: int, issued: int) -> None:
    """An operation on the page, as a rank writes it."""
    page = folder / "state"
    words = memoryview(bytearray(page.read_bytes())).cast("q")
    first = layout.WORD_OPERATIONS + row * layout.OPERATION_WORDS
    words[first] = layout.AXES_BIAS + mask if mask else -1
    words[first + 1], words[first + 2], words[first + 3] = int(Stage.EP_ALL_TO_ALL), GROUP_BASE - mask, issued
    words[layout.WORD_NUM_OPERATIONS] = row + 1
    page.write_bytes(words.tobytes())


def test_evidence_names_the_axes_and_the_ranks_of_each_group(tmp_path: Path) -> None:
    session = telemetry.start("run", topology=MESH, rank=5, attempt=0, spool=tmp_path, agent=False)
    telemetry.stop()
    assert session.folder is not None
    for row, mask in enumerate((BOTH, 0, MESH.mask("tp"), 1 << 9)):
        show(session.folder, row, mask, issued=3)
    reader = RankReader(session.folder)
    told = state_body(
        reader.identity(), reader.live(), "dead", living="alive", died_ns=0, ended_by="", habits=()
    )  # fmt: skip
    state = json.loads(told)
    assert state["topology"] == {"dp": 4, "pp": 2, "tp": 2, "mesh": str(MESH)}
    rows = [(one["axis"], one["mask"], one["axes"], one["ranks"], one["peer"]) for one in state["operations"]]
    assert rows == [
        ("dp", BOTH, ["dp_shard", "cp"], [1, 3, 5, 7], -1),
        (None, 0, [], [], -1),
        ("tp", MESH.mask("tp"), ["tp"], [4, 5], -1),
        (None, 0, [], [], -1),
    ]


def test_a_rank_usually_does_in_a_group_what_it_did_in_that_group(tmp_path: Path) -> None:
    session = telemetry.start("run", topology=MESH, rank=5, attempt=0, spool=tmp_path, agent=False)
    for number in range(4):
        with telemetry.step(number):
            for mask, size in ((BOTH, 100), (MESH.mask("cp"), 200)):
                telemetry.record_span(
                    Stage.EP_ALL_TO_ALL, 1, 1, size_bytes=size + number, peer=GROUP_BASE - mask, op_seq=number + 1
                )
    telemetry.stop()
    assert session.folder is not None
    show(session.folder, 0, BOTH, issued=4)
    reader = RankReader(session.folder)
    operations = RecentOperations(reader)
    operations.read_on()
    (habit,) = operations.habits(reader.live())
    assert [one.size_bytes for one in habit.recent] == [100, 101, 102, 103]
    assert habit.usual is not None
    assert habit.usual.size_bytes == 102


def test_a_span_says_what_it_was_measured_with() -> None:
    records = np.zeros(3, layout.RECORD)
    records["kind"] = layout.RecordKind.SPAN
    records["text_length"] = (SpanClock.HOST, SpanClock.DEVICE, SpanClock.TRANSFER)
    assert decode_spans(records, 0, lambda at_ns: at_ns)["clock"].tolist() == [0, 1, 2]
