"""A keeper over HTTP, and as a process."""

import os
import signal
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from telemetry.errors import UnreadableError
from telemetry.process.child_process import birth_of
from tests.deadline import until
from tests.each_case import each_case
from tests.telemetry.served import serving
from tests.trainer.replicas.made_parts import GIB, TOKEN, keeping, made_part
from trainer.replicas.client import KeeperClient
from trainer.replicas.keeper import keeper_settings, make_app
from trainer.replicas.keeper_process import KeeperProcess
from trainer.replicas.memory_folder import MemoryFolder, memory_folder
from trainer.replicas.memory_limits import Memory
from trainer.replicas.part_store import PartStore
from trainer.replicas.parts import header_of

CONTENT = bytes(range(256)) * 10_000
PART = made_part(0, CONTENT)
NAME = PART.files[0].name


@pytest.fixture
def files() -> Iterator[MemoryFolder]:
    with memory_folder("test") as folder:
        folder.write(NAME, CONTENT)
        yield folder


@pytest.fixture
def client() -> Iterator[KeeperClient]:
    with keeping(PartStore()) as url, KeeperClient(url, TOKEN) as found:
        yield found


def test_keeper_stores_a_part_and_returns_its_byte_ranges(client: KeeperClient, files: MemoryFolder) -> None:
    client.send(PART, files)
    assert client.parts() == [PART]
    assert client.read(PART, NAME, 1000, 300) == CONTENT[1000:1300]
    assert client.read_whole(PART, NAME) == CONTENT


def test_reading_a_range_that_is_not_stored_raises_an_error(client: KeeperClient, files: MemoryFolder) -> None:
    client.send(PART, files)
    for part, name, begin in ((made_part(1), NAME, 0), (PART, "other", 0), (PART, NAME, len(CONTENT) - 5)):
        with pytest.raises(UnreadableError):
            client.read(part, name, begin, 10)


def test_keep_only_drops_the_parts_of_other_generations(client: KeeperClient, files: MemoryFolder) -> None:
    client.send(PART, files)
    client.keep_only(PART.generation)
    assert client.parts() == [PART]
    client.keep_only(None)
    assert client.parts() == []


def test_client_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it reads certificates")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", refuse)
    with KeeperClient("http://127.0.0.1:1", TOKEN):
        pass


def test_request_with_a_wrong_token_is_rejected(client: KeeperClient, files: MemoryFolder) -> None:
    with KeeperClient(client.address, "other" * 10) as stranger:
        for act in (stranger.parts, lambda: stranger.send(PART, files), lambda: stranger.keep_only(None)):
            with pytest.raises(UnreadableError, match="401"):
                act()
    assert client.parts() == []


@each_case(
    "body",
    [
        b"",
        b"\0",
        b"\xff" * 100,
        header_of(PART),
        header_of(PART) + CONTENT[:-1],
    ],
)
def test_body_that_is_not_a_complete_part_is_rejected(client: KeeperClient, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.post(f"{client.address}/v1/parts", content=body, headers=headers, trust_env=False, verify=False)
    assert answer.status_code == 400
    assert client.parts() == []


def test_part_is_rejected_when_too_little_memory_is_free(files: MemoryFolder) -> None:
    def memory() -> Memory:
        return Memory(total_bytes=GIB, free_bytes=GIB // 10 + PART.size_bytes // 2)

    store = PartStore()
    app = make_app(store, keeper_settings("127.0.0.1", TOKEN), memory)
    with (
        serving(app) as url,
        KeeperClient(url, TOKEN) as client,
        pytest.raises(UnreadableError, match="too little free"),
    ):
        client.send(PART, files)
    assert store.parts() == []


def test_restarted_keeper_has_the_same_address_and_no_parts(files: MemoryFolder) -> None:
    keeper = KeeperProcess("")
    try:
        with KeeperClient(keeper.url, TOKEN) as client:
            keeper.look_after(TOKEN)
            client.send(PART, files)
            keeper.may_hold_parts = True
            keeper.forget()
            keeper.look_after(TOKEN)
            assert client.parts() == []
    finally:
        keeper.end()


def test_keeper_that_cannot_start_is_reported_and_raises_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    keeper = KeeperProcess("")
    try:
        keeper.look_after(TOKEN)
    finally:
        keeper.end()
    assert "the keeper of replicas cannot start" in capsys.readouterr().err


def test_keeper_ends_and_frees_its_memory_when_its_executor_is_killed(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    ready = tmp_path / "pid"
    child = os.fork()
    if not child:
        try:
            keeper = KeeperProcess("")
            keeper.look_after(TOKEN)
            assert keeper._process is not None
            ready.with_suffix(".new").write_text(str(keeper._process.pid))
            ready.with_suffix(".new").rename(ready)
            signal.pause()
        finally:
            os._exit(1)
    until(ready.exists, what="the keeper")
    pid = int(ready.read_text())
    born = birth_of(pid)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: birth_of(pid) != born, what="the end of the keeper")
    assert set(os.listdir("/dev/shm")) <= before
