"""Replica groups: several torch jobs, each with ranks from 0, are recorded as one run."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from telemetry.errors import UsageError
from telemetry.replica_groups import GROUP, NUM_GROUPS, ReplicaGroup
from telemetry.settings import RecordingSettings
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.telemetry.attach.attached_process import attached, attached_together
from tests.telemetry.recording import recorded

SECOND = ReplicaGroup(index=1, count=2)
GROUP_SIZE = 2
REDUCED = 2


@pytest.mark.parametrize(
    ("of_group", "of_all"),
    [
        ("dp=1,pp=1,tp=1", "dp_replicate=2,dp=1,pp=1,tp=1"),
        ("dp_shard=2,tp=2", "dp_replicate=2,dp_shard=2,tp=2"),
        ("dp_replicate=3,dp_shard=2", "dp_replicate=6,dp_shard=2"),
        ("dp_replicate=1,tp=2", "dp_replicate=2,tp=2"),
        ("pp=2,dp_replicate=2", "dp_replicate=8"),
    ],
)
def test_mesh_of_all_replica_groups_has_an_outer_replicate_axis(of_group: str, of_all: str) -> None:
    assert SECOND.of_all(Topology.parse(of_group)) == Topology.parse(of_all)


def test_replica_group_is_read_from_the_environment_and_validated() -> None:
    assert ReplicaGroup.from_environment({GROUP: "1", NUM_GROUPS: "2"}) == SECOND
    assert ReplicaGroup.from_environment({GROUP: "1"}) == ReplicaGroup()
    for wrong in ("2", "-1", "x"):
        with pytest.raises(UsageError, match=GROUP):
            ReplicaGroup.from_environment({GROUP: wrong, NUM_GROUPS: "2"})


def test_ranks_are_numbered_over_all_groups_if_the_run_has_a_common_name() -> None:
    environment = {"RANK": "1", "WORLD_SIZE": "2", GROUP: "1", NUM_GROUPS: "2", "TORCHELASTIC_RESTART_COUNT": "3"}
    named = RecordingSettings.from_environment({**environment, "RANKSCOPE_RUN": "one"}).of_all_groups(None)
    assert (named.run_id, named.attempt, named.rank, named.world_size) == ("one", 0, 3, 4)
    unnamed = RecordingSettings.from_environment({**environment, "TORCHELASTIC_RUN_ID": "job"}).of_all_groups(None)
    assert (unnamed.run_id, unnamed.attempt, unnamed.rank, unnamed.world_size) == ("job-group-1", 3, 1, 2)


def exchange() -> None:
    """A rank of a group: both ranks reduce gradients, and rank 0 sends to rank 1."""
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=os.environ["MEET"], rank=rank, world_size=GROUP_SIZE)
    shard = dist.new_group([0, 1], group_desc="mesh_dp_shard")
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(1 + REDUCED):  # the first optimizer step attaches, because the tests import telemetry
        parameter.sum().backward()
        dist.all_reduce(parameter.grad, group=shard)
        dist.send(torch.ones(4), 1) if rank == 0 else dist.recv(torch.ones(4), 0)
        optimizer.step()
    dist.destroy_process_group()


@pytest.mark.gloo
def test_real_replica_groups_are_recorded_as_one_run_with_one_mesh(tmp_path: Path) -> None:
    ranks = [
        {
            "RANK": str(rank), "WORLD_SIZE": str(GROUP_SIZE), "LOCAL_RANK": str(rank),
            GROUP: str(group), NUM_GROUPS: "2", "MEET": f"file://{tmp_path}/meet{group}",
        }
        for group in range(2) for rank in range(GROUP_SIZE)
    ]  # fmt: skip
    attached_together(tmp_path, ranks, exchange)
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    for number in range(4):
        found = recorded(tmp_path / "spool", number)
        identity = found.reader.identity()
        assert (identity.rank, identity.topology) == (number, topology)
        reduced = found.spans[found.spans["stage"] == Stage.GRADS_ALL_REDUCE]
        assert len(reduced) == REDUCED
        assert set(reduced["peer"].tolist()) == {-2 - topology.mask("dp_shard")}
        peers = {operation.peer for operation in found.reader.live().operations if operation.peer >= 0}
        assert peers == {number ^ 1}  # the other rank of its group


@pytest.mark.gloo
def test_replica_groups_of_one_rank_are_recorded_as_ranks_of_one_run(tmp_path: Path) -> None:
    """As in torchft's examples, torch has no process group. rankscope attaches at the first optimizer step."""
    for group in ("0", "1"):
        attached(tmp_path, RANK="0", WORLD_SIZE="1", **{GROUP: group, NUM_GROUPS: "2"})
    for number in range(2):
        identity = recorded(tmp_path / "spool", number).reader.identity()
        assert (identity.rank, identity.topology) == (number, Topology.parse("dp_replicate=2,dp=1,pp=1,tp=1"))
