"""Training with a failing part of telemetry has the bit-identical losses of training without telemetry."""

import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

import telemetry
from telemetry.record.clocks.interface import ManualClock
from telemetry.record.rank_file import RankFile
from telemetry.record.state_page import StatePage
from telemetry.stages import Stage
from tests.telemetry.recording import session

STEPS = 12


START_WITH_A_FULL_STDERR = """
import telemetry
telemetry.start("run", spool="/proc/x", collector=None)
with telemetry.step(0):
    pass
telemetry.stop()
"""


def test_process_exits_normally_when_a_warning_cannot_be_printed() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", START_WITH_A_FULL_STDERR], stderr=full, check=False)
    assert ended.returncode == 0


def train() -> list[float]:
    """Losses of a small model in an instrumented loop."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return [_step(number, model, optimiser) for number in range(STEPS)]


def _step(number: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> float:
    with telemetry.step(number):
        with telemetry.span(Stage.DATA_LOAD):
            inputs = torch.randn(32, 16, generator=torch.Generator().manual_seed(number))
        with telemetry.span(Stage.FORWARD_COMPUTE, microbatch=0):
            loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
        with telemetry.span(Stage.BACKWARD_COMPUTE, microbatch=0):
            loss.backward()
        with telemetry.span("no-such-stage"), telemetry.span(Stage.OPTIMIZER):
            optimiser.step()
            optimiser.zero_grad()
        telemetry.sample("loss", loss.item())
        telemetry.mark("step", f"number {number}")
    return loss.item()


@pytest.fixture(scope="module")
def plain() -> list[float]:
    return train()


def _fail(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "broken on purpose")


def _break_nothing(_: pytest.MonkeyPatch) -> None:
    pass


def _break_segments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RankFile, "open_segment", _fail)


def _break_allocation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("os.posix_fallocate", _fail)


def _break_the_state_page(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatePage, "__init__", _fail)


def _break_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RankFile, "close", _fail)


def _break_the_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("telemetry.record.clocks.drain.open_device_clock", lambda device: ManualClock())
    for name in ("begin", "end", "drain"):
        patch.setattr(ManualClock, name, _fail)


def _break_the_agent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("os.posix_spawn", _fail)


def _break_the_worker_server(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("telemetry.record.worker_server._listen", _fail)


def _break_the_socket_s_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("os.mkdir", _fail)


def _break_the_log_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("telemetry.record.recording.log_offsets", _fail)


def _break_the_environment(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("RANK", "not a number")


@pytest.fixture
def without_agents(tmp_path: Path) -> Iterator[None]:
    """End the agents of the test. They would try for a minute to reach a collector that does not exist."""
    yield
    for process in psutil.process_iter(["cmdline"]):
        if str(tmp_path) in (process.info["cmdline"] or ()):
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.usefixtures("without_agents")
@pytest.mark.parametrize(
    "breaks",
    [
        _break_nothing,
        _break_segments,
        _break_allocation,
        _break_the_state_page,
        _break_the_end,
        _break_the_clock,
        _break_the_agent,
        _break_the_worker_server,
        _break_the_socket_s_folder,
        _break_the_log_files,
        _break_the_environment,
    ],
)
def test_loss_is_bit_identical_when_a_part_of_telemetry_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: list[float], breaks: Callable[[pytest.MonkeyPatch], None]
) -> None:
    breaks(monkeypatch)
    telemetry.start("test", rank=0, local_rank=0, spool=tmp_path, topology=telemetry.Topology(), collector="http://c")
    losses = train()
    telemetry.stop()
    assert losses == plain


def test_the_loss_is_bit_identical_when_the_spool_vanishes(tmp_path: Path, plain: list[float]) -> None:
    with session(tmp_path / "spool"):
        (tmp_path / "spool").rename(tmp_path / "elsewhere")
        assert train() == plain


def test_the_loss_is_bit_identical_when_the_spool_cannot_be_written(plain: list[float]) -> None:
    with session(Path("/proc/rankscope")):
        assert train() == plain
