"""Process groups that torchft creates are traced in place. Replica groups of a real torchft job are one run."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankscope_attach
import telemetry
from diagnose.findings import Kind
from diagnose.pipeline import diagnose_run
from tests.telemetry.attach.adapters.attached_process import LIMIT_S
from tests.telemetry.attach.adapters.framework_ranks import LIMIT_S as REAL_LIMIT_S
from tests.telemetry.attach.adapters.framework_ranks import PYTHON, RUN, needs, script
from tests.telemetry.attach.entry_points import installed
from tests.telemetry.recording import recorded
from ui.cli.readers import open_spool

REPLICAS = {"REPLICA_GROUP_ID": "1", "NUM_REPLICA_GROUPS": "2", "RANKSCOPE_RUN": "one"}
STEPS = 16
SLOW_GROUP = 1


class ProcessGroupWrapper(dist.ProcessGroup):
    """The parts of ``torchft/process_group.py`` that hold the plain group, with a real one of gloo."""

    def __init__(self, global_ranks: list[int] | None) -> None:
        super().__init__(0, 1)
        self._pg: Any = None
        self._global_ranks = global_ranks

    @property
    def parent(self) -> Any:
        return self._pg

    def reconfigure(self, store: Path, rank: int, size: int) -> None:
        shared = dist.FileStore(str(store), size)
        self._pg = dist.ProcessGroup(shared, rank, size)
        self._pg._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        backend = dist.ProcessGroupGloo(shared, rank, size)
        self._pg._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        return self.parent.allreduce(tensors, opts)


def train(folder: Path, rank: int) -> None:
    """Three steps, each on a new group, as after changes of the quorum. Then a group with unknown ranks."""
    package, groups = ModuleType("torchft"), ModuleType("torchft.process_group")
    vars(groups)["ProcessGroupWrapper"] = ProcessGroupWrapper
    sys.modules.update({"torchft": package, "torchft.process_group": groups})
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer, wrapper = torch.optim.SGD([weight], lr=0.1), ProcessGroupWrapper([0, 1])
    wrapper.reconfigure(folder / "quorum", rank, 2)  # before the process is a rank
    for number in range(3):
        weight.square().sum().backward()
        optimizer.step()
        reduce(wrapper)
        wrapper.reconfigure(folder / f"quorum-{number}", rank, 2)
    unknown = ProcessGroupWrapper(None)
    unknown.reconfigure(folder / "unknown", rank, 2)
    reduce(unknown)
    assert type(unknown._pg) is dist.ProcessGroup


def reduce(wrapper: ProcessGroupWrapper) -> None:
    reduced = torch.ones(4)
    wrapper.allreduce([reduced], dist.AllreduceOptions()).wait()
    assert reduced.tolist() == [2.0] * 4


def train_replica(folder: Path, rank: int) -> None:
    """Train one replica. Runs in a forked process."""
    torch.set_num_threads(1)
    own = {"RANKSCOPE_COLLECTOR": "", "RANKSCOPE": "1", "RANKSCOPE_SPOOL": str(folder / "spool"), "WORLD_SIZE": "1"}
    os.environ.update({**REPLICAS, **own, "REPLICA_GROUP_ID": str(rank)})
    rankscope_attach.attach()
    train(folder, rank)
    telemetry.stop()


def test_torchft_replicas_are_one_run_and_their_collectives_are_recorded(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    replicas = [fork.Process(target=train_replica, args=(tmp_path, rank)) for rank in range(2)]
    for replica in replicas:
        replica.start()
    for replica in replicas:
        replica.join(LIMIT_S)
        assert replica.exitcode == 0
    for rank in range(2):
        found = recorded(tmp_path / "spool", rank)
        assert str(found.reader.identity().topology) == "dp_replicate=2,dp=1,pp=1,tp=1"
        assert found.stages.count("grads-all-reduce") == 3
        assert dict(found.marks)["adapter"] == "torchft"
        assert "collectives-untraced" in dict(found.marks)  # of the last group


def train_for_real(folder: Path, *, slow: bool = False, **variables: str) -> list[str]:
    """The losses that both groups print."""
    folder.mkdir()
    environment = installed(
        folder,
        RANKSCOPE_SPOOL=str(folder / "spool"),
        SLOW_RANK=str(SLOW_GROUP) if slow else "",
        WORLD_SIZE="1",
        RANK="0",
        LOCAL_RANK="0",
        **variables,
    )
    command = [PYTHON, script("torchft_job")]
    job = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=REAL_LIMIT_S)
    assert job.returncode == 0, job.stderr[-4000:]
    return sorted(line for line in job.stdout.splitlines() if line.startswith("group"))


@pytest.mark.gloo
@pytest.mark.long
@needs("torchft")
def test_real_torchft_replica_groups_are_one_run_with_bit_identical_losses(tmp_path: Path) -> None:
    plain = train_for_real(tmp_path / "plain", slow=True)
    assert train_for_real(tmp_path / "attached", slow=True, RANKSCOPE="1", RANKSCOPE_RUN=RUN) == plain
    spool = tmp_path / "attached" / "spool"
    for rank in range(2):
        found = recorded(spool, rank)
        identity = found.reader.identity()
        assert (identity.rank, str(identity.topology)) == (rank, "dp_replicate=2,dp=1,pp=1,tp=1")
        assert found.stages.count("step") >= STEPS - 1
    with open_spool(spool) as reader:
        findings = diagnose_run(reader, RUN, 0).findings
    stragglers = [list(finding.ranks) for finding in findings if finding.kind is Kind.COMPUTE_STRAGGLER]
    assert stragglers == [[SLOW_GROUP]]
