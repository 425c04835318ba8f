"""Each worker group of verl is recorded as one run. Real verl jobs keep bit-identical losses."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from telemetry.attach.deciding import Names
from telemetry.attach.ray_names import names_of_worker
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.records import role_in
from tests.telemetry.attach.adapters.framework_ranks import LIMIT_S, PYTHON, RUN, needs, script
from tests.telemetry.attach.entry_points import installed

NAMES = Names(run=None, local_rank=0)


def worker(actor: str | None) -> SimpleNamespace:
    context = SimpleNamespace(get_actor_name=lambda: actor, get_job_id=lambda: "01000000")
    return SimpleNamespace(get_runtime_context=lambda: context)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a worker of a group."""
    for name in ("RANKSCOPE_RUN", "RANKSCOPE_ROLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WG_BACKEND", "ray")
    monkeypatch.setenv("WG_PREFIX", "standalone_")
    return monkeypatch


def test_each_worker_group_is_a_run_with_its_class_as_role(group: pytest.MonkeyPatch) -> None:
    group.setitem(sys.modules, "ray", worker("standalone_CriticWorker_1:3"))  # type: ignore[arg-type]
    named = Names(run="verl-01000000-standalone_CriticWorker", local_rank=None, role="CriticWorker")
    assert names_of_worker(NAMES) == named
    group.setenv("RANKSCOPE_RUN", "ppo")
    group.setenv("RANKSCOPE_ROLE", "mine")
    assert names_of_worker(NAMES) == Names(run="ppo-standalone_CriticWorker", local_rank=None)


@pytest.mark.parametrize("actor", [None, "", "another_1:3"])
def test_process_that_is_not_a_worker_of_the_group_keeps_its_names(
    group: pytest.MonkeyPatch, actor: str | None
) -> None:
    assert names_of_worker(NAMES) == NAMES
    group.setitem(sys.modules, "ray", worker(actor))  # type: ignore[arg-type]
    assert names_of_worker(NAMES) == NAMES


# A real verl.


def train(folder: Path, **variables: str) -> list[str]:
    """The losses of both groups."""
    folder.mkdir()
    environment = installed(
        folder, RANKSCOPE_SPOOL=str(folder / "spool"), RAY_USAGE_STATS_ENABLED="0", OMP_NUM_THREADS="1", **variables
    )
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        environment.pop(name, None)
    command = [PYTHON, script("verl_job"), "4"]
    job = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert job.returncode == 0, job.stderr[-4000:]
    losses = [line for line in job.stdout.splitlines() if line.startswith("losses")]
    assert len(losses) == 2
    return losses


@pytest.mark.gloo
@pytest.mark.long
@needs("verl.single_controller.ray")
def test_real_verl_worker_groups_are_two_runs_with_bit_identical_losses(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain")
    assert train(tmp_path / "attached", RANKSCOPE="1", RANKSCOPE_RUN=RUN) == plain
    identities = [RankReader(folder).identity() for folder in find_rank_dirs(tmp_path / "attached" / "spool")]
    found = {(re.sub(r"-\w{6}Actor", "-Actor", each.run_id), each.rank, role_in(each.meta)) for each in identities}
    assert found == {
        (f"{RUN}-{name}", rank, role)
        for name, role in (("ActorWorker", "actorworker"), ("standalone_critic_CriticWorker", "criticworker"))
        for rank in range(2)
    }
