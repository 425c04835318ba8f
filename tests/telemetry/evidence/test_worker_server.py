"""torch's worker server in a rank. Only its user can call it. The rank also records without it."""

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import telemetry
from telemetry.evidence import flight_recorder, stacks
from telemetry.evidence.flight_recorder import MAX_ENTRIES, ask_flight_recorder
from telemetry.evidence.stacks import take_stack, threads_of_traceback
from telemetry.evidence.worker_client import ask_handler
from telemetry.record import worker_server
from telemetry.record.reader import RankReader
from telemetry.records import RankIdentity
from telemetry.topology import Topology

TRACEBACK = """Current thread 0x00007f05121286c0 (most recent call first):
  <no Python frame>

Thread 0x00007f0534a1eb80 (most recent call first):
  File "/v/lib/python3.13/site-packages/telemetry/record/spans.py", line 3 in span
  File "/a/loader.py", line 5 in next_batch
  File "/a/train.py", line 26 in <module>
"""


@pytest.fixture(autouse=True)
def _servers_to_spare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Allow one more server than this process has started so far."""
    assert torch.distributed.is_available()
    monkeypatch.setattr(worker_server, "MAX_SERVERS", worker_server._num_started + 1)
    yield
    telemetry.stop()


def record(spool: Path) -> RankIdentity:
    """Start to record. Return the identity of the rank."""
    session = telemetry.start("run", rank=0, attempt=0, topology=Topology(), spool=spool, agent=False)
    assert session.recording
    assert session.folder is not None
    return RankReader(session.folder).identity()


def in_a_process(script: str, **environment: str) -> str:
    """Output of a new interpreter that has not imported torch."""
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_BUFFER_SIZE")}
    told = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=120, check=True, env=inherited | environment,
    )  # fmt: skip
    return told.stdout.strip()


START = "import telemetry, sys; s = telemetry.start('r', rank=0, topology=telemetry.Topology(), spool=sys.argv[-1])"


def test_only_this_user_may_open_the_socket(tmp_path: Path) -> None:
    path = Path(record(tmp_path / "s").meta["worker_server"])
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_worker_server_answers_only_while_the_rank_records(tmp_path: Path) -> None:
    identity = record(tmp_path / "s")
    assert "record" in (ask_handler(identity, "dump_traceback") or "")
    assert '"version"' in (ask_flight_recorder(identity, 0) or "")
    telemetry.stop()
    assert not Path(identity.meta["worker_server"]).exists()
    assert ask_handler(identity, "dump_traceback") is None


def test_socket_is_in_the_short_folder_if_its_path_in_the_spool_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        identity = record(tmp_path / ("deep" * 20))
        path = Path(identity.meta["worker_server"])
        assert path.is_relative_to(short)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert ask_handler(identity, "dump_traceback")
        telemetry.stop()


def test_old_sockets_of_killed_ranks_are_removed_from_the_short_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary, socket.socket(socket.AF_UNIX) as live:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        folder = worker_server._place_for_socket(tmp_path / ("deep" * 30)).parent
        live.bind(str(folder / "live"))
        live.listen()
        for name in ("killed", "new"):
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(folder / name))
        (folder / "file").touch()
        for name in ("killed", "live", "file"):
            os.utime(folder / name, (0, 0))
        worker_server._place_for_socket(tmp_path / ("deep" * 30))
        assert sorted(path.name for path in folder.iterdir()) == ["file", "live", "new"]


def test_socket_is_not_created_in_a_folder_that_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "s/run/0/rank-00000/worker"
    with tempfile.TemporaryDirectory(dir="/tmp") as first:
        monkeypatch.setattr(tempfile, "tempdir", first)
        for folder in (own, Path(first, f"rankscope-{os.getuid()}-workers")):
            folder.mkdir(parents=True)
            folder.chmod(0o777)
        path = Path(record(tmp_path / "s").meta["worker_server"])
        assert path.is_relative_to(f"/tmp/rankscope-{os.getuid()}-workers")


def test_socket_is_not_created_through_a_link_below_the_spool(tmp_path: Path) -> None:
    (tmp_path / "real/0/rank-00000").mkdir(parents=True)
    (tmp_path / "run").symlink_to(tmp_path / "real")
    path = worker_server._place_for_socket(tmp_path / "run/0/rank-00000")
    assert not path.is_relative_to(tmp_path)
    assert not list((tmp_path / "real/0/rank-00000").iterdir())


def test_rank_prints_one_line_if_no_socket_path_is_short_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker_server, "MAX_PATH_BYTES", 1)
    assert "worker_server" not in record(tmp_path).meta
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("rankscope: no path for the socket of torch's worker server")
    assert "is too long" in line


def test_rank_records_without_a_worker_server_if_its_socket_cannot_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_server, "_place_for_socket", lambda folder: Path("/proc/nowhere/socket"))
    identity = record(tmp_path)
    assert "worker_server" not in identity.meta
    assert ask_flight_recorder(identity, 0) is None


def test_telemetry_does_not_import_torch_for_the_worker_server(tmp_path: Path) -> None:
    assert (
        in_a_process(
            f"{START}; print(s.recording, 'torch' in sys.modules)".replace("sys.argv[-1]", f"{str(tmp_path)!r}")
        )
        == "True False"
    )


def test_disabled_telemetry_starts_no_worker_server_and_sets_no_buffer_size(tmp_path: Path) -> None:
    script = (
        f"import torch, os; {START}; print(list(os.scandir({str(tmp_path)!r})), os.environ.get('TORCH_FR_BUFFER_SIZE'))"
    )
    assert in_a_process(script.replace("sys.argv[-1]", f"{str(tmp_path)!r}"), RANKSCOPE_DISABLED="1") == "[] None"


def test_forked_child_does_not_remove_the_socket(tmp_path: Path) -> None:
    identity = record(tmp_path / "s")
    child = os.fork()
    if child == 0:
        telemetry.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert ask_handler(identity, "dump_traceback")


def test_flight_recorder_buffer_size_is_set_unless_the_user_has_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"TORCH_FR_BUFFER_SIZE": "17"}
    worker_server.keep_flight_recorder(chosen)
    assert chosen == {"TORCH_FR_BUFFER_SIZE": "17"}
    of_old = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "17"}
    worker_server.keep_flight_recorder(of_old)
    assert of_old == {"TORCH_NCCL_TRACE_BUFFER_SIZE": "17"}
    nothing: dict[str, str] = {}
    worker_server.keep_flight_recorder(nothing)
    assert nothing == {"TORCH_FR_BUFFER_SIZE": "2000"}


def made_entry(number: int, group: str, state: str) -> dict[str, Any]:
    return {"record_id": number, "process_group": [group, "desc"], "state": state, "retired": state == "completed"}


def cut_to(entries: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record ids of the entries that are kept from a recorder."""
    dump = json.dumps({"version": "2.10", "entries": entries, "pg_status": {"0": {}}})
    told = json.loads(flight_recorder._together(flight_recorder._parsed("fr_trace_json", dump)) or "")
    assert told["pg_status"] == {"0": {}}
    return [entry["record_id"] for entry in told["entries"]]


def test_unfinished_entries_and_the_last_entries_of_each_group_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [made_entry(number, "tp" if number % 2 else "dp", "completed") for number in range(40)]
    entries[10] = made_entry(10, "dp", "started")
    assert cut_to(entries, monkeypatch) == [10, 34, 35, 36, 37, 38, 39]


def test_last_entries_of_each_group_are_kept_if_too_many_are_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [made_entry(0, "pp", "completed"), *(made_entry(number, "dp", "scheduled") for number in range(1, 900))]
    taken = cut_to(entries, monkeypatch)
    assert len(taken) == MAX_ENTRIES
    assert taken == [0, *range(701, 900)]


def test_without_py_spy_the_stack_comes_from_the_worker_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = record(tmp_path / "s")
    monkeypatch.setattr(stacks, "py_spy", lambda: None)
    body = take_stack(identity) or ""
    assert '"tool": "worker-server"' in body
    assert "test_without_py_spy_the_stack_comes_from_the_worker_server (test_worker_server.py:" in body


def test_no_stack_is_taken_without_py_spy_and_without_a_worker_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "py_spy", lambda: "/bin/false")
    monkeypatch.setattr(worker_server, "MAX_SERVERS", 0)
    assert take_stack(record(tmp_path / "s")) is None


def test_a_traceback_lists_the_main_thread_last() -> None:
    (thread,) = threads_of_traceback(TRACEBACK)
    assert thread["main"]
    assert thread["frames"] == [
        "span (telemetry/record/spans.py:3)",
        "next_batch (loader.py:5)",
        "<module> (train.py:26)",
    ]
    assert threads_of_traceback("nonsense\n\nmore") == []
