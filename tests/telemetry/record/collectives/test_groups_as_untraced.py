"""A traced process group behaves like a plain group of torch."""

import gc
from datetime import timedelta
from pathlib import Path
from weakref import ref

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import telemetry
from telemetry.group_names import peer_of_axes
from telemetry.record.collectives.process_group import TracedGroup, register_traced_backend
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.telemetry.record.collectives.two_ranks import two_ranks
from tests.telemetry.recording import recorded

pytestmark = pytest.mark.gloo
PAIR = Topology(tp=2)


def _world() -> TracedGroup:
    world = dist.group.WORLD
    assert isinstance(world, TracedGroup)
    return world


def _looks_plain(rank: int) -> None:
    assert dist.get_backend() == "gloo"
    assert dist.get_backend_config() == "cpu:gloo,cuda:gloo"
    assert _world().name() == "gloo"
    assert isinstance(_world()._get_backend(torch.device("cpu")), dist.ProcessGroupGloo)
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    own = dist.new_group([0, 1], group_desc="mesh_tp")
    assert isinstance(own, TracedGroup)
    assert (own.group_desc, dist.get_process_group_ranks(own)) == ("mesh_tp", [0, 1])
    assert distributed_c10d._resolve_process_group(own.group_name) is own
    assert isinstance(dist.new_group([1]), TracedGroup) == (rank == 1)
    dist.barrier()  # a rank that ends earlier can close a connection that its peer still makes


def test_traced_group_reports_the_same_properties_as_a_plain_group(tmp_path: Path) -> None:
    two_ranks(_looks_plain, tmp_path)


def _backend_by_device(rank: int) -> None:
    assert dist.get_backend_config() == "cpu:gloo"
    total = torch.ones(2)
    dist.all_reduce(total, group=_world())
    assert total.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("backend", ["cpu:gloo", None])
def test_group_is_traced_when_the_backend_is_given_by_device_or_omitted(tmp_path: Path, backend: str | None) -> None:
    two_ranks(_backend_by_device, tmp_path, grid=PAIR, backend=backend)
    assert recorded(tmp_path, 0).stages.count("tp-all-reduce") == 1


def _split(rank: int) -> None:
    """Each rank splits off a group of one rank. A gloo split of two ranks sometimes hangs, also without tracing."""
    part = _world().split_group([rank], group_name=f"part-{rank}", group_desc="mesh_tp")
    assert isinstance(part, TracedGroup)
    assert (part.ranks, part.group_name, part.group_desc) == ((rank,), f"part-{rank}", "mesh_tp")
    total = torch.ones(1)
    part.allreduce([total]).wait()
    assert total.item() == 1.0


def test_group_created_by_split_group_is_traced(tmp_path: Path) -> None:
    two_ranks(_split, tmp_path, grid=PAIR)
    assert [shown.mask for shown in recorded(tmp_path, 0).reader.live().operations] == [0]


def _destroyed(rank: int) -> None:
    part = dist.new_group([0, 1])
    assert isinstance(part, TracedGroup)
    groups = [ref(group) for group in (part, part.inner, _world(), _world().inner)]
    for group in (part, None):  # gloo connects each pair by itself: a rank that ends early breaks the other's start
        dist.barrier(group)
    dist.destroy_process_group(part)
    with pytest.raises(ValueError, match="not initialized"):
        dist.get_backend(part)
    dist.destroy_process_group()
    del part
    gc.collect()
    assert [group() for group in groups] == [None] * 4
    assert not dist.is_initialized()


def test_destroyed_group_is_freed(tmp_path: Path) -> None:
    two_ranks(_destroyed, tmp_path)


def _compiled(rank: int) -> None:
    group = dist.new_group([0, 1])

    def work(values: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(values := values * 2, group=group)
        gathered = torch.empty(8)
        dist.all_gather_into_tensor(gathered, values)
        return gathered + 1

    with torch.no_grad():
        compiled = torch.compile(work, backend="aot_eager", fullgraph=True)(torch.ones(4))
    assert compiled.tolist() == [5.0] * 8


@pytest.mark.filterwarnings("ignore")
def test_collectives_in_a_compiled_graph_are_recorded(tmp_path: Path) -> None:
    two_ranks(_compiled, tmp_path, grid=PAIR)
    stages = recorded(tmp_path, 0).stages
    assert (stages.count("tp-all-reduce"), stages.count("tp-all-gather")) == (1, 1)


def _learning(rank: int) -> None:
    register_traced_backend("gloo")
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1), group=group)
    group._set_group_desc("mesh_tp")  # type: ignore[union-attr]
    dist.all_reduce(torch.ones(1), group=group)
    with telemetry.step(0):
        dist.all_reduce(torch.ones(1), group=group)


def test_groups_created_before_the_mesh_is_known_get_stages_and_axes_later(tmp_path: Path) -> None:
    """The session learns the mesh from the description of the group. In this plain mesh, tp is bit 2. Spans before the
    first step hold the described axes, if there are any: a mask would mean other axes in another mesh. Sequence numbers
    continue."""
    two_ranks(_learning, tmp_path, grid=None)
    found = recorded(tmp_path, 0)
    reduced = found.spans[found.spans["op_seq"] > 0]
    assert [int(stage) for stage in reduced["stage"]] == [Stage.GRADS_ALL_REDUCE, *[Stage.TP_ALL_REDUCE] * 2]
    assert reduced["peer"].tolist() == [-1, peer_of_axes(("tp",), 2), -2 - 4]
    assert np.diff(reduced["op_seq"]).tolist() == [1, 1]
    assert [shown.mask for shown in found.reader.live().operations if shown.stage] == [4]
    assert found.reader.identity().topology == Topology(tp=2)


def test_collectives_work_when_no_session_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in (
        (distributed_c10d, "_new_process_group_helper"),
        (distributed_c10d, "batch_isend_irecv"),
        (dist, "batch_isend_irecv"),
    ):
        monkeypatch.setattr(place, name, getattr(place, name))  # restored at the end
    register_traced_backend("gloo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        work.wait()
        assert not telemetry.record.session.current_session().recording
    finally:
        dist.destroy_process_group()
