"""`rankscope doctor` checks this machine, and shows the folder that ranks write into, for `diagnose --spool`."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from diagnose.nodecheck.check import Check
from telemetry.errors import UnknownRunError
from telemetry.settings import spool_of
from ui.cli.commands.doctor import DoctorOptions
from ui.cli.doctor import doctor, fitness


def checked(name: str) -> Check:
    return next(check for check in fitness() if check.name == name)


def room() -> str:
    return checked("room for rank files").found


def test_machine_without_a_gpu_passes_the_driver_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = checked("NVIDIA driver")
    assert (check.fit, check.found) == (True, "none: ranks run on the CPU")


def test_doctor_shows_the_spool_folder_of_the_environment_without_creating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "not" / "yet"
    monkeypatch.setenv("RANKSCOPE_SPOOL", str(spool))
    assert room().endswith(f" GiB free in {spool}")
    assert not spool.parent.exists()


def test_default_spool_folder_belongs_to_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKSCOPE_SPOOL", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert room().endswith(f" GiB free in {spool_of()}")
    assert spool_of().parent.parent == tmp_path


STANDING_RANK = """
import sys, telemetry
telemetry.start(run="job", spool=sys.argv[1], rank=0, meta={"backend": "nccl", "collective_timeout_s": "45"})
print("ready", flush=True)
sys.stdin.read()
"""


def test_doctor_reads_the_settings_of_a_running_job_from_its_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the environment of a rank, its NCCL configuration file, and the timeout that it reported."""
    (tmp_path / "nccl.conf").write_text("NCCL_IB_TIMEOUT=18\nNCCL_IB_DISABLE=1\n")
    of_job = {"NCCL_CONF_FILE": str(tmp_path / "nccl.conf"), "NCCL_TOPO_FILE": "missing.xml", "NCCL_BUFFSIZE": "12"}
    monkeypatch.setenv("NCCL_BUFFSIZE", "4194304")
    command = [sys.executable, "-c", STANDING_RANK, str(tmp_path)]
    with subprocess.Popen(
        command, env=os.environ | of_job, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"ready\n"
        assert doctor(DoctorOptions(job=True, run="job", spool=tmp_path, flap=50.0, json=True)) == 1
        rank.communicate()
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {name for name, check in found.items() if not check["fit"]} == {
        "timeout of collectives", "buffers", "topology file"
    }  # fmt: skip
    assert found["buffers"]["found"] == "NCCL_BUFFSIZE=12"
    assert found["topology file"]["found"] == "missing.xml: No such file or directory"
    assert found["retries of TCP"]["fit"]
    with pytest.raises(UnknownRunError, match="no rank of run job is alive on this host"):
        doctor(DoctorOptions(job=True, run="job", spool=tmp_path))
