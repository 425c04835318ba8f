"""Each role is analysed as a separate job. Its ranks keep their numbers of the whole job."""

from dataclasses import replace

import numpy as np
import pytest

from diagnose.model.operations import Operations
from diagnose.model.roles import role_views, topology_of_role
from diagnose.model.view import RunView
from telemetry.group_names import peer_of_mask
from telemetry.records import ROLE
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_operations import make_operations
from tests.diagnose.made_view import make_view

GRID = Topology(dp=4, pp=1, tp=2)
META = tuple({ROLE: "rollout" if rank < 4 else "actor"} for rank in range(8))


def with_peer(peers: list[int], stage: Stage = Stage.GRADS_ALL_REDUCE) -> RunView:
    """A job of two roles. Each rank has one operation in each step, with this peer."""
    view = make_view(GRID, num_steps=3)
    one = make_operations(np.full((3, 8), 5e6))
    one = replace(one, peer=np.broadcast_to(np.array(peers, dtype=np.int32), (3, 1, 8)).copy())
    return replace(view, meta=META, operations={stage: one})


def of_actor(view: RunView, stage: Stage) -> Operations | None:
    return role_views(view)[1].operations.get(stage)


def test_job_with_one_role_has_a_single_view_of_the_whole_job() -> None:
    view = replace(make_view(GRID), meta=({ROLE: "actor"},) * 7 + ({},))
    assert role_views(view) == [view]


def test_role_names_that_differ_for_every_rank_are_ignored() -> None:
    many = make_view(Topology(dp=40), num_steps=2)
    view = replace(many, meta=tuple({ROLE: f"actor-{rank}"} for rank in range(40)))
    assert role_views(view) == [view]


def test_role_view_has_its_part_of_the_mesh_and_keeps_the_rank_numbers_of_the_job() -> None:
    rollout, actor = role_views(replace(make_view(GRID), meta=META))
    assert (rollout.role, actor.role) == ("rollout", "actor")
    assert actor.topology == Topology(dp=2, pp=1, tp=2)
    assert actor.numbers([0, 3]) == [4, 7]
    assert actor.describe(1) == "rank 5 (host gpu-00, role actor, dp0 pp0 tp1)"
    assert all(work.ns.shape == (40, 4) for work in actor.work.values())


@pytest.mark.parametrize(("ranks", "topology"), [([0, 1, 4, 5], Topology(dp=2, tp=2)), ([0, 1, 3], Topology(dp=3))])
def test_role_whose_ranks_form_no_block_of_the_mesh_counts_as_data_parallel(
    ranks: list[int], topology: Topology
) -> None:
    assert topology_of_role(GRID, np.array(ranks)) == topology


def test_operations_with_other_roles_are_ignored() -> None:
    within, across = peer_of_mask(GRID.mask("tp")), peer_of_mask(GRID.mask("dp"))
    assert of_actor(with_peer([across] * 8), Stage.GRADS_ALL_REDUCE) is None
    assert of_actor(with_peer([within] * 8), Stage.GRADS_ALL_REDUCE) is not None


def test_peer_of_a_transfer_is_renumbered_within_the_role() -> None:
    sends = of_actor(with_peer([1, 0, 3, 2, 0, 4, 7, 99], Stage.FORWARD_SEND), Stage.FORWARD_SEND)
    assert sends is not None
    assert sends.present[0, 0].tolist() == [False, True, True, False]  # 4 sends to another role, 7 to no known rank
    assert sends.peer[0, 0, 1:3].tolist() == [0, 3]
