"""A rank learns its mesh while it records. The mesh reaches the disk, the agent and the store."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import telemetry
from telemetry.agent.host import Host
from telemetry.agent.loop import Agent
from telemetry.agent.settings import AgentSettings
from telemetry.errors import UnreadableError, UsageError
from telemetry.record import layout
from telemetry.record.layout import META_NAME
from telemetry.record.reader import RankReader
from telemetry.record.recording import when_learned
from telemetry.record.session import see_group
from telemetry.records import topology_of
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import Marks, Ranks, Spans
from telemetry.topology import Topology
from tests.telemetry.made_rows import made, of_run
from tests.telemetry.record.test_mesh_learning import TITAN, FakeMesh, groups_of
from tests.telemetry.served import collecting

MESH = Topology.parse("pp=2,dp_shard=2,tp=2")
RUN = {"run_id": "run", "attempt": 0}


@pytest.fixture(autouse=True)
def _eight_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.delenv("RANKSCOPE_MESH", raising=False)
    yield
    telemetry.stop()


def start(spool: Path, **told: object) -> RankReader:
    session = telemetry.start("run", rank=5, attempt=0, spool=spool, agent=False, **told)  # type: ignore[arg-type]
    assert session.folder is not None
    return RankReader(session.folder)


def see_groups(mesh: Topology = MESH) -> None:
    for description, ranks in groups_of(mesh, 5, TITAN):
        see_group(description, ranks, mesh.world_size)


def record_step(number: int) -> None:
    with telemetry.step(number):
        pass


def test_listeners_are_called_with_the_mesh_at_start_and_the_learned_mesh(tmp_path: Path) -> None:
    heard: list[Topology] = []
    when_learned(heard.append)
    reader = start(tmp_path)
    before = reader.identity()
    assert before.topology == Topology(dp=8)
    see_groups()
    after = reader.identity()
    assert (after.topology, after.opened_ns, after.started_ns) == (MESH, before.opened_ns, before.started_ns + 1)
    assert reader.live().identity_ns == after.started_ns
    assert heard == [Topology(dp=8), MESH]
    see_groups()
    assert heard == [Topology(dp=8), MESH]


def test_groups_created_before_the_session_are_used_to_learn_the_mesh(tmp_path: Path) -> None:
    see_groups()
    assert start(tmp_path).identity().topology == MESH


def test_mesh_set_by_the_user_is_not_replaced_by_a_learned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_MESH", "dp=2, pp=2, tp=2")
    reader = start(tmp_path)
    see_groups()
    assert reader.identity().topology == Topology(dp=2, pp=2, tp=2)


def test_device_mesh_is_accepted_as_topology(tmp_path: Path) -> None:
    mesh = FakeMesh(torch.arange(8).reshape(2, 2, 2), ("pp", "dp_shard", "tp"))
    assert start(tmp_path, topology=mesh).identity().topology == MESH


@pytest.mark.parametrize(
    ("mesh", "line"),
    [("pp=2", "RANKSCOPE_MESH has 2 ranks, the job has 8"), ("pp:2", "not a mesh"), ("q=8", "'q' is not an axis")],
)
def test_invalid_mesh_variable_is_reported_and_the_rank_still_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mesh: str, line: str
) -> None:
    monkeypatch.setenv("RANKSCOPE_MESH", mesh)
    reader = start(tmp_path)
    assert line in capsys.readouterr().err
    see_groups()
    assert reader.identity().topology == MESH


def test_device_mesh_in_an_irregular_order_is_reported_and_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = start(tmp_path, topology=FakeMesh(torch.arange(8).flip(0).reshape(4, 2), ("dp", "tp")))
    assert "not in a regular order" in capsys.readouterr().err
    assert reader.identity().topology == Topology(dp=8)


@pytest.mark.parametrize(
    "given", [Topology(dp=4), FakeMesh(torch.arange(4).reshape(2, 2), ("dp", "tp"))], ids=["topology", "DeviceMesh"]
)
def test_given_mesh_with_another_world_size_is_reported_and_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: object
) -> None:
    session = telemetry.start("run", topology=given, rank=5, attempt=0, spool=tmp_path, agent=False)
    assert "the given mesh has 4 ranks, the job has 8" in capsys.readouterr().err
    assert session.recording
    see_groups()
    assert session.identity is not None
    assert session.identity.topology == MESH


def test_mesh_is_refined_only_before_the_first_step(tmp_path: Path) -> None:
    """From the first step on, spans store axes as bits. Bits of another mesh would mean other axes."""
    reader = start(tmp_path)
    session = telemetry.record.session.current_session()
    coarse = Topology(dp=4, tp=2)
    for description, ranks in (("mesh_tp", [4, 5]), ("mesh_dp", [1, 3, 5, 7])):
        see_group(description, ranks, 8)
    assert (reader.identity().topology, session.mesh_is_final) == (coarse, False)
    finer = Topology.parse("dp=2,cp=2,tp=2")
    assert session.learn(finer)
    record_step(0)
    assert session.mesh_is_final
    assert not session.learn(coarse)
    assert reader.identity().topology == finer


def test_learned_mesh_that_equals_the_assumed_mesh_is_final(tmp_path: Path) -> None:
    reader = start(tmp_path)
    record_step(0)
    see_group("mesh_dp", list(range(8)), 8)
    assert telemetry.record.session.current_session().mesh_is_final
    assert reader.identity().topology == Topology(dp=8)


def test_mesh_with_another_world_size_is_not_learned(tmp_path: Path) -> None:
    session = telemetry.start("run", rank=5, attempt=0, spool=tmp_path, agent=False)
    assert not session.learn(Topology(dp=16))
    see_groups(Topology.parse("pp=2,dp_shard=4,tp=2"))
    assert session.identity is not None
    assert session.identity.topology == Topology(dp=8)


def test_agent_announces_a_rank_again_with_its_learned_mesh_and_loses_no_record(
    tmp_path: Path, embedded: EmbeddedStore
) -> None:
    start(tmp_path)
    with collecting(embedded) as client:
        agent = Agent(Host(tmp_path), client, AgentSettings(spool=tmp_path, collector=client.url))
        record_step(0)
        agent.turn()
        assert topology_of(client.read(Ranks(**RUN))) == Topology(dp=8)
        see_groups()
        record_step(1)
        agent.turn()
        assert topology_of(client.read(Ranks(**RUN))) == MESH
        telemetry.stop()
        agent.turn()
        assert client.read(Spans(**RUN, first_step=0, last_step=9, stages=(int(Stage.STEP),)))["step"].to_pylist() == [
            0,
            1,
        ]
        (mark,) = client.read(Marks(**RUN)).to_pylist()
        assert (mark["name"], mark["text"]) == ("mesh-learned", str(MESH))


def test_learned_mesh_is_announced_if_the_rank_ended_before_the_agent_polled(
    tmp_path: Path, embedded: EmbeddedStore
) -> None:
    start(tmp_path)
    with collecting(embedded) as client:
        agent = Agent(Host(tmp_path), client, AgentSettings(spool=tmp_path, collector=client.url))
        agent.turn()
        see_groups()
        telemetry.stop()
        agent.turn()
        assert topology_of(client.read(Ranks(**RUN))) == MESH


def test_announcement_whose_degrees_contradict_its_mesh_is_refused(embedded: EmbeddedStore) -> None:
    plain = {"rank": 5, "dp_size": 8, "opened_ns": 5, "started_ns": 5, "host": "h"}
    with collecting(embedded) as client:
        client.post("ranks", of_run(made("ranks", [plain])))
        grid = {"dp_size": 2, "pp_size": 2, "tp_size": 2, "started_ns": 6}
        client.post("ranks", of_run(made("ranks", [{**plain, **grid, "mesh": str(MESH)}])))
        assert topology_of(client.read(Ranks(**RUN))) == MESH
        with pytest.raises(UsageError, match="does not match dp 2, pp 2, tp 2"):
            client.post("ranks", of_run(made("ranks", [{**plain, **grid, "mesh": "pp=2,dp_shard=4,tp=2"}])))
        assert topology_of(client.read(Ranks(**RUN))) == MESH


def test_folder_of_an_older_version_is_read_as_a_plain_dp_pp_tp_mesh(tmp_path: Path) -> None:
    reader = start(tmp_path, topology=Topology(dp=2, pp=2, tp=2))
    record_step(0)
    telemetry.stop()
    path = reader.folder / META_NAME
    fields = json.loads(path.read_text())
    assert fields["topology"].pop("mesh") == "dp=2,pp=2,tp=2"
    path.write_text(json.dumps(fields))
    page = reader.folder / "state"
    words = memoryview(bytearray(page.read_bytes())).cast("q")
    words[layout.WORD_NUM_OPERATIONS] = 3
    for axis in range(3):  # dp, pp, tp, as older versions number them
        words[layout.WORD_OPERATIONS + axis * layout.OPERATION_WORDS] = axis
        words[layout.WORD_OPERATIONS + axis * layout.OPERATION_WORDS + 3] = 1
    page.write_bytes(words.tobytes())
    topology = reader.identity().topology
    assert topology == Topology(dp=2, pp=2, tp=2)
    assert [topology.axes_of(one.mask) for one in reader.live().operations] == [("dp",), ("pp",), ("tp",)]
    assert os.path.getsize(page) == layout.STATE_BYTES


@pytest.mark.parametrize("mesh", ["pp=2,dp_shard=4", 7, "pp=2,dp_shard=4,tp=2"])
def test_identity_whose_mesh_contradicts_its_degrees_is_unreadable(tmp_path: Path, mesh: object) -> None:
    reader = start(tmp_path, topology=Topology(dp=2, pp=2, tp=2))
    path = reader.folder / META_NAME
    fields = json.loads(path.read_text())
    fields["topology"]["mesh"] = mesh
    path.write_text(json.dumps(fields))
    with pytest.raises(UnreadableError, match="has no valid identity"):
        reader.identity()
