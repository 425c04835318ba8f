"""Spans recorded before the mesh is known store a group name. They get axes when the mesh is known."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

import telemetry
from telemetry.group_names import NO_PEER, axes_of_peer, peer_of_axes, peer_of_mask, resolved_peers
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.topology import MESH_AXES, Topology
from tests.each_case import each_case
from tests.telemetry.recording import recorded

HYBRID = Topology.parse("dp_replicate=2,dp_shard=4,tp=2")
SHARDS, REPLICAS = [[0, 1], [2, 3]], [[0, 2], [1, 3]]


@each_case(
    ("names", "size", "axes"),
    [
        (("dp_shard",), 4, ("dp_shard",)),
        (("dp_shard", "cp"), 4, ("dp_shard",)),  # torchtitan's "fsdp", also where the mesh has no cp
        (("dp_replicate", "dp_shard"), 8, ("dp_replicate", "dp_shard")),
        (("dp_shard",), 8, ()),  # a group of 8 also has ranks of another axis
        (("ep",), 4, ()),
    ],
)
def test_group_name_becomes_an_axis_mask_only_if_the_mesh_has_such_a_group(
    names: tuple[str, ...], size: int, axes: tuple[str, ...]
) -> None:
    peers = np.array([peer_of_axes(names, size), 3, NO_PEER, peer_of_mask(5)], dtype=np.int32)
    assert resolved_peers(peers, HYBRID).tolist() == [peer_of_mask(HYBRID.mask(*axes)), 3, NO_PEER, peer_of_mask(5)]
    assert resolved_peers(peers, Topology(dp=16)).tolist() == [NO_PEER, 3, NO_PEER, peer_of_mask(5)]


def test_encoded_group_name_fits_int32_and_never_equals_an_axis_mask() -> None:
    largest = peer_of_axes(MESH_AXES, 2**20)
    assert -(2**31) <= largest < peer_of_mask(2 ** len(MESH_AXES) - 1)
    assert axes_of_peer(largest) == MESH_AXES
    assert (axes_of_peer(peer_of_mask(5)), axes_of_peer(3), peer_of_axes((), 4)) == ((), (), NO_PEER)


def _learn_after_the_first_step(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["WORLD_SIZE"] = "4"
    dist.init_process_group(
        register_traced_backend("gloo"), init_method=f"file://{folder}/meet", rank=rank, world_size=4
    )
    telemetry.start("run", rank=rank, attempt=0, spool=folder / "spool", agent=False)
    with telemetry.step(0):
        shards, _ = dist.new_subgroups_by_enumeration(SHARDS, group_desc="mesh_dp_shard")
        dist.all_reduce(torch.ones(1), group=shards)
    with telemetry.step(1):
        dist.new_subgroups_by_enumeration(REPLICAS, group_desc="mesh_dp_replicate")
        dist.all_reduce(torch.ones(1), group=shards)
    telemetry.stop()
    dist.barrier()  # a rank that ends early can close a connection that its peer still opens
    dist.destroy_process_group()


@pytest.mark.gloo
def test_operations_recorded_before_the_mesh_is_known_get_their_axes(tmp_path: Path) -> None:
    torch.multiprocessing.start_processes(_learn_after_the_first_step, (tmp_path,), nprocs=4, start_method="fork")
    found = recorded(tmp_path / "spool")
    topology = found.reader.identity().topology
    assert topology == Topology.parse("dp_replicate=2,dp_shard=2")
    spans = found.spans[found.spans["op_seq"] > 0]
    assert spans["step"].tolist() == [0, 1]
    assert spans["peer"][0] != spans["peer"][1]
    assert resolved_peers(spans["peer"], topology).tolist() == [peer_of_mask(topology.mask("dp_shard"))] * 2
