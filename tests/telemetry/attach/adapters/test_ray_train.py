"""Workers of Ray Train get the names that Ray gives them. Real Ray Train jobs keep bit-identical losses."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from diagnose.pipeline import diagnose_run
from telemetry.attach.deciding import Names
from telemetry.attach.ray_names import names_of_worker
from telemetry.stages import Stage
from tests.telemetry.attach.adapters.attached_process import attached
from tests.telemetry.attach.adapters.framework_ranks import LIMIT_S, PYTHON, SLOW_RANK, needs, script
from tests.telemetry.attach.entry_points import installed
from tests.telemetry.recording import recorded
from ui.cli.readers import open_spool

NAMES = Names(run="slurm-7", local_rank=None)
STEPS, RUN = 16, "gpt-small"
REPORTED: list[tuple[object, object]] = []


def get_context() -> SimpleNamespace:
    """The context of worker 3 of a node."""
    return SimpleNamespace(get_experiment_name=lambda: RUN, get_local_rank=lambda: 3)


def no_context() -> SimpleNamespace:
    raise RuntimeError("not a worker")


def test_ray_worker_gets_the_experiment_name_and_its_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKSCOPE_RUN", raising=False)
    assert names_of_worker(NAMES) == NAMES
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=get_context))  # type: ignore[arg-type]
    assert names_of_worker(NAMES) == Names(run=RUN, local_rank=3)
    monkeypatch.setenv("RANKSCOPE_RUN", "mine")
    assert names_of_worker(NAMES) == Names(run=None, local_rank=3)


def test_process_that_is_not_a_ray_worker_keeps_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=no_context))  # type: ignore[arg-type]
    assert names_of_worker(NAMES) == NAMES


def report(metrics: dict[str, object], checkpoint: object = None, **options: object) -> None:
    """As ``ray/train/v2/api/train_fn_utils.py``."""
    REPORTED.append((metrics, checkpoint))


def train_and_report() -> None:
    train = ModuleType("ray.train")
    vars(train).update(report=report, get_context=no_context)
    sys.modules.update({"ray": ModuleType("ray"), "ray.train": train})
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    optimizer.step()
    train.report({"loss": 2.5, "note": "text"})
    train.report({"loss": 2.25}, checkpoint="checkpoint")
    assert REPORTED == [({"loss": 2.5, "note": "text"}, None), ({"loss": 2.25}, "checkpoint")]


def test_reported_metrics_are_recorded_as_samples_and_a_checkpoint_as_a_span(tmp_path: Path) -> None:
    found = attached(tmp_path / "spool", train_and_report)
    assert found.samples == [("loss", 2.5), ("loss", 2.25)]
    assert found.stages.count(Stage.CHECKPOINT_WRITE.label) == 1


# A real Ray Train.


def train(folder: Path, *, fails: bool = False, slow: bool = False, **variables: str) -> str:
    """The losses that a job of two workers prints."""
    folder.mkdir()
    environment = installed(
        folder,
        RANKSCOPE_SPOOL=str(folder / "spool"),
        RAY_USAGE_STATS_ENABLED="0",
        OMP_NUM_THREADS="1",
        SLOW_RANK=str(SLOW_RANK) if slow else "",
        **variables,
    )
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        environment.pop(name, None)
    command = [PYTHON, script("ray_job"), RUN, str(folder / "out"), str(int(fails))]
    job = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert job.returncode == 0, job.stderr[-4000:]
    (losses,) = [line for line in job.stdout.splitlines() if line.startswith("loss")]
    return losses


@pytest.mark.gloo
@pytest.mark.long
@needs("ray.train")
def test_real_ray_workers_are_one_run_with_bit_identical_losses(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain")
    assert train(tmp_path / "attached", RANKSCOPE="1") == plain
    assert len(plain.split()) == STEPS + 1
    for rank in range(2):
        found = recorded(tmp_path / "attached" / "spool", rank)
        identity = found.reader.identity()
        assert (identity.run_id, identity.rank, identity.local_rank) == (RUN, rank, rank)
        assert found.stages.count("step") >= STEPS - 1
        assert found.stages.count("optimizer") == STEPS
        assert found.stages.count("checkpoint-write") == (8 if rank == 0 else 0)  # torch.save, and its report
        assert {"loss"} <= {name for name, _ in found.samples}


@pytest.mark.gloo
@pytest.mark.long
@needs("ray.train")
def test_slow_ray_worker_is_the_only_suspect(tmp_path: Path) -> None:
    train(tmp_path / "slow", slow=True, RANKSCOPE="1")
    with open_spool(tmp_path / "slow" / "spool") as reader:
        findings = diagnose_run(reader, RUN, 0).findings
    assert [list(finding.ranks) for finding in findings if finding.ranks] == [[SLOW_RANK]]
