"""Which device clock a session uses. The choice does not initialise CUDA."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from telemetry.record.clocks.cuda import loaded_driver
from telemetry.record.clocks.drain import GPU_NODES, expects_device, open_device_clock
from tests.telemetry.recording import session

FAKE_DRIVER = """
static _Thread_local int mode = 0;
int cuThreadExchangeStreamCaptureMode(int *given) { int before = mode; mode = *given; *given = before; return 0; }
int cuDeviceGet(int *handle, int ordinal) { *handle = ordinal + 100; return ordinal < 4 ? 0 : 101; }
int cuDevicePrimaryCtxGetState(int handle, unsigned *flags, int *active) { *active = handle == 102; return 0; }
int mode_of_thread(void) { return mode; }
"""
USE_DRIVER = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
from telemetry.record.clocks.cuda import loaded_driver
driver = loaded_driver()
with driver.relaxed_captures():
    print(library.mode_of_thread())
print(library.mode_of_thread(), [driver.has_context(index) for index in range(4)])
try:
    driver.has_context(4)
except OSError as error:
    print(error)
"""


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU, and a torch that supports it."""
    (node := tmp_path / "nvidiactl").touch()
    monkeypatch.setattr("telemetry.record.clocks.drain.GPU_NODES", (node,))
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("gpu")
def test_rank_with_a_gpu_opens_no_device_clock_before_it_uses_the_gpu() -> None:
    assert expects_device("auto")
    assert open_device_clock("auto") is None
    assert not expects_device("cpu")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("hidden", ["", "-1"])
def test_rank_whose_gpus_are_hidden_expects_no_device_clock(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert not expects_device("auto")


@pytest.mark.usefixtures("gpu")
def test_rank_with_a_torch_without_cuda_expects_no_device_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.version.cuda", None)
    assert not expects_device("auto")


@pytest.mark.skipif(any(node.exists() for node in GPU_NODES), reason="this machine has a GPU")
def test_session_without_a_gpu_starts_no_drain_thread(tmp_path: Path) -> None:
    with session(tmp_path) as started:
        assert started.identity is not None
        assert started.identity.meta["device"] == "cpu"
        assert "rankscope-drain" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.skipif(any(node.exists() for node in GPU_NODES), reason="this machine has a GPU")
def test_missing_gpu_prints_a_clear_error_when_cuda_is_requested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with session(tmp_path, device="cuda") as started:
        assert not started.recording
    assert "torch sees no CUDA device" in capsys.readouterr().err


def test_driver_functions_are_called_with_their_declared_c_types(tmp_path: Path) -> None:
    """A fake library of the same name has ``int`` return codes, an exchanged and restored mode, and device handles."""
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text(FAKE_DRIVER)
    build = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)]
    try:
        subprocess.run(build, check=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    command = [sys.executable, "-c", USE_DRIVER, str(library)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert lines == ["2", "0 [False, False, True, False]", "cuDeviceGet failed with CUDA error 101"]


@pytest.mark.skipif(any(node.exists() for node in GPU_NODES), reason="this machine has a GPU")
def test_loaded_driver_is_none_when_the_process_has_no_cuda_driver() -> None:
    assert loaded_driver() is None
