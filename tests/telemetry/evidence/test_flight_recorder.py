"""The agent reads a rank's flight recorders from handlers of the worker server and from files of torch."""

import json
import os
import pickle
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from telemetry.evidence import worker_client
from telemetry.evidence.flight_recorder import NCCL, ask_flight_recorder, read_flight_files
from telemetry.files import plain_pickle
from telemetry.record.rank_identity import DUMP_PATHS, dump_places
from telemetry.record.worker_server import META_KEY as SOCKET
from telemetry.records import RankIdentity
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.telemetry.worker_socket import Answer, serve_handlers

GLOO, TORCHCOMMS = "fr_trace_json", "torchcomms_fr_trace_json"
UNUSED_UID = 54321
"""A user id that does not exist on this machine."""
Serve = Callable[[dict[str, Answer]], RankIdentity]


def rank_with(**meta: str) -> RankIdentity:
    """This process, as a rank."""
    return RankIdentity(
        run_id="run", attempt=0, rank=0, host="here", local_rank=0, pid=os.getpid(), topology=Topology(), started_ns=1,
        uid=os.geteuid(), meta=meta,
    )  # fmt: skip


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setattr(worker_client, "ANSWER_S", 0.5)
    monkeypatch.setattr(worker_client, "_silent", type(worker_client._silent)())
    ends: list[Callable[[], None]] = []

    def start(answers: dict[str, Answer]) -> RankIdentity:
        ends.append(serve_handlers(tmp_path / "socket", answers))
        return rank_with(**{SOCKET: str(tmp_path / "socket")})

    yield start
    for end in ends:
        end()


def dump(*groups: str) -> dict[str, Any]:
    """A dump with one entry per group."""
    entries = [
        {"record_id": number, "process_group": [group, ""], "state": "scheduled", "frames": [{"name": "f"}]}
        for number, group in enumerate(groups)
    ]
    return {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries}


def served(*groups: str) -> bytes:
    return json.dumps(dump(*groups)).encode()


def groups_of(told: dict[str, Any]) -> list[str]:
    return [entry["process_group"][0] for entry in told["entries"]]


def test_nccl_recorder_is_the_main_source_and_the_gloo_recorder_is_kept_beside_it(serve: Serve) -> None:
    rank = serve({GLOO: served("gloo"), NCCL: served("nccl"), "ping": b"pong"})
    told = json.loads(ask_flight_recorder(rank, 0) or "")
    assert (told["source"], groups_of(told)) == (NCCL, ["nccl"])
    (beside,) = told["beside"]
    assert (beside["source"], groups_of(beside)) == (GLOO, ["gloo"])
    assert "frames" not in told["entries"][0]


def test_empty_recorder_is_ignored_if_another_recorder_has_entries(serve: Serve) -> None:
    rank = serve({GLOO: served("gloo"), NCCL: served(), TORCHCOMMS: b"not JSON"})
    told = json.loads(ask_flight_recorder(rank, 0) or "")
    assert told["source"] == GLOO
    assert "beside" not in told


def test_only_handlers_that_the_torch_build_has_are_called(serve: Serve) -> None:
    asked: list[str] = []
    rank = serve({"ping": lambda: asked.append("ping") or b"pong"})  # type: ignore[func-returns-value]
    assert ask_flight_recorder(rank, 0) is None
    assert asked == []
    assert not any(NCCL in key for _, _, key in worker_client._silent)


def test_only_the_gloo_recorder_is_requested_from_a_rank_that_makes_progress(serve: Serve) -> None:
    """The other recorders could break a graph capture."""
    rank = serve({GLOO: served("gloo"), NCCL: served("nccl"), TORCHCOMMS: served("comms")})
    told = json.loads(ask_flight_recorder(rank, 0, stands_still=False) or "")
    assert told["source"] == GLOO
    assert "beside" not in told


def test_handler_that_hangs_does_not_block_others_and_is_called_at_most_twice(serve: Serve) -> None:
    asked: list[float] = []
    end = threading.Event()

    def hang() -> bytes:
        asked.append(time.monotonic())
        end.wait()  # a caller that waits for this runs into the time limit of the test
        return b"{}"

    rank = serve({GLOO: served("gloo"), NCCL: hang})
    for _ in range(4):
        assert json.loads(ask_flight_recorder(rank, 0) or "")["source"] == GLOO
    end.set()
    assert len(asked) == worker_client.MOST_SILENT


def test_dump_file_that_is_slow_to_read_does_not_lose_the_answer_of_a_handler(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "slow.py"
    program.write_text("import time; time.sleep(3600)")
    monkeypatch.setattr(plain_pickle, "__file__", str(program))
    monkeypatch.setattr(
        "telemetry.evidence.flight_recorder.CONVERT_S", 3600.0
    )  # a caller that waits for this runs into the time limit of the test
    served_by = serve({GLOO: served("gloo")})
    rank = replace(served_by, meta={**served_by.meta, **files_of(written_to(tmp_path / "dump_0")).meta})
    told = json.loads(ask_flight_recorder(rank, 0, by_s=time.monotonic() + 1) or "")
    assert told["source"] == GLOO


def test_answered_or_refused_request_is_not_remembered_as_silent(serve: Serve, tmp_path: Path) -> None:
    assert worker_client.ask_handler(serve({GLOO: b"x"}), GLOO) == "x"
    assert worker_client.ask_handler(rank_with(**{SOCKET: str(tmp_path / "missing")}), GLOO) is None
    assert not worker_client._silent


def test_oldest_silent_handlers_are_forgotten_above_the_limit(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "MAX_SILENT_KEYS", 2)
    monkeypatch.setattr(worker_client, "ANSWER_S", 0.1)
    never = threading.Event()
    rank = serve({name: lambda: never.wait(60) and b"" for name in "abc"})  # type: ignore[misc]
    for name in "abc":
        assert worker_client.ask_handler(rank, name) is None
    never.set()
    assert [place for _, _, place in worker_client._silent] == ["/handler/b", "/handler/c"]


def files_of(*paths: Path) -> RankIdentity:
    return rank_with(**{DUMP_PATHS: json.dumps([str(path) for path in paths])})


@pytest.mark.parametrize(
    "written", [pickle.dumps(dump("nccl")), json.dumps(dump("nccl")).encode()], ids=["pickle", "json"]
)
def test_dump_file_of_torch_is_read_as_pickle_or_json(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "dump_0"
    path.write_bytes(written)
    told = json.loads(read_flight_files(files_of(tmp_path / "missing", path), 0) or "")
    assert (told["source"], groups_of(told)) == (f"file:{path}", ["nccl"])


def test_dump_file_has_lower_priority_than_nccl_and_higher_priority_than_gloo(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "dump_0"
    path.write_bytes(pickle.dumps(dump("written")))
    with_nccl, with_gloo = (json.dumps({**dump(source), "source": source, "beside": []}) for source in (NCCL, GLOO))
    assert groups_of(json.loads(read_flight_files(files_of(path), 0, with_nccl) or "")) == [NCCL]
    told = json.loads(read_flight_files(files_of(path), 0, with_gloo) or "")
    assert (groups_of(told), told["beside"][0]["source"]) == (["written"], GLOO)


def a_link(path: Path) -> None:
    path.symlink_to(written_to(path.with_name("real")))


def a_second_name(path: Path) -> None:
    os.link(written_to(path.with_name("real")), path)


def of_another_user(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it gives a file away")
    os.chown(written_to(path), UNUSED_UID, UNUSED_UID)


def of_an_earlier_step(path: Path) -> None:
    os.utime(written_to(path), ns=(SINCE_NS - 1, SINCE_NS - 1))


def a_hostile_pickle(path: Path) -> None:
    path.write_bytes(b"cos\nsystem\n(S'touch " + bytes(path.with_name("ran")) + b"'\ntR.")


def cut_off(path: Path) -> None:
    path.write_bytes(pickle.dumps(dump("nccl"))[:-20])


def written_to(path: Path) -> Path:
    path.write_bytes(pickle.dumps(dump("nccl")))
    return path


SINCE_NS = time.time_ns() - 10**12


@pytest.mark.parametrize(
    "make",
    [a_link, a_second_name, of_another_user, of_an_earlier_step, os.mkfifo, Path.mkdir, a_hostile_pickle, cut_off],
    ids=lambda make: make.__name__,
)
def test_unsafe_or_outdated_dump_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "dump_0")
    assert read_flight_files(files_of(tmp_path / "dump_0"), SINCE_NS) is None
    assert not (tmp_path / "ran").exists()


def test_pickle_whose_json_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written_to(tmp_path / "dump_0")
    assert read_flight_files(files_of(path), SINCE_NS)
    monkeypatch.setattr(plain_pickle, "MAX_JSON_BYTES", 50)
    assert read_flight_files(files_of(path), SINCE_NS) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a process of another user")
def test_a_pickle_of_another_user_is_read_with_the_rights_of_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader does not get the agent's environment, which may contain its token."""
    monkeypatch.setenv("RANKSCOPE_TOKEN", "secret")
    real = Path(plain_pickle.__file__).read_text().partition("if __name__")[0]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        program, path = Path(folder, "who.py"), Path(folder, "dump_0")
        program.write_text(real + WHO)
        os.chown(written_to(path), UNUSED_UID, UNUSED_UID)
        monkeypatch.setattr(plain_pickle, "__file__", str(program))
        told = json.loads(read_flight_files(replace(files_of(path), uid=UNUSED_UID), SINCE_NS) or "{}")
    assert told["pg_status"] == [[UNUSED_UID] * 3, [65534] * 3, [], False]


WHO = """
def load_plain(data):
    who = [os.getresuid(), os.getresgid(), os.getgroups(), "RANKSCOPE_TOKEN" in os.environ]
    return {"entries": [], "pg_status": who}

sys.exit(_convert(sys.argv[1:]))
"""


@each_case("told", ["[", "7", '["relative", 7, "/nul\\u0000"]'])
def test_invalid_dump_paths_are_ignored(told: str) -> None:
    assert read_flight_files(rank_with(**{DUMP_PATHS: told}), 0) is None


def places(**environment: str) -> list[str]:
    found: list[str] = json.loads(dump_places(3, environment)[DUMP_PATHS])
    return found


def test_rank_reports_the_paths_where_torch_will_write_dumps() -> None:
    assert places(TORCH_FR_DUMP_TEMP_FILE="/d/new_", TORCH_NCCL_DEBUG_INFO_TEMP_FILE="/d/old_", HOME="/h") == [
        "/d/new_3", "/d/old_3", "/h/.cache/torchcomm_fr_trace_3",
    ]  # fmt: skip
    assert places(HOME="/h", XDG_CACHE_HOME="/x", TORCHCOMM_FR_DUMP_TEMP_FILE="/c_") == [
        "/x/torch/comm_lib_trace_rank_3", "/h/.cache/torch/comm_lib_trace_rank_3",
        "/h/.cache/torch/nccl_trace_rank_3", "/tmp/nccl_trace_rank_3", "/c_3",
    ]  # fmt: skip
    dynamic = places(TORCH_FR_DUMP_TEMP_FILE="/d/at-noon", TORCH_FR_DUMP_DYNAMIC_FILE_NAME="1")
    assert dynamic[:2] == ["/d/at-noon3", "/d/at-noon"]


def test_answer_that_arrives_byte_by_byte_is_stopped_by_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_client, "ANSWER_S", 0.3)
    monkeypatch.setattr(worker_client, "_silent", type(worker_client._silent)())
    length, sent = 600, []

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):  # the client has hung up
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % length)
            while len(sent) < length:
                connection.sendall(b"x")
                sent.append(1)
                time.sleep(0.05)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        server = threading.Thread(target=serve)
        server.start()
        assert worker_client.ask_handler(rank_with(**{SOCKET: str(tmp_path / "socket")}), GLOO) is None
        server.join()
    assert len(sent) < length
