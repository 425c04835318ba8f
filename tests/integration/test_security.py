"""Attacks on a real collector: refused with the right status, the store unharmed, the collector alive, memory flat."""

import gzip
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest

from telemetry.errors import UnreachableError, UsageError
from telemetry.record.agent_process import spawn_agent
from telemetry.stores.queries import Runs, Spans
from telemetry.tables import SPANS
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import ARROW_TYPE, encode
from tests.certificates import Pair, make_authority, make_server
from tests.deadline import until
from tests.integration.attacked import KEPT, Attacked, attacked, head, received, statuses
from tests.integration.hostile_bytes import damaged
from tests.telemetry.made_rows import numbered_spans, of_run

FULL, WRITE, READ = "full-5f3a9c", "write-77b1e0", "read-0d44fe"
TOKENS = {"RANKSCOPE_TOKEN": FULL, "RANKSCOPE_WRITE_TOKEN": WRITE, "RANKSCOPE_READ_TOKEN": READ}
MAX_BODY_BYTES = 2_000_000
MAX_BODIES_BYTES = 16_000_000
BODY_S = 3
MAX_GROWTH_MIB = 200
GOOD = encode(of_run(numbered_spans(0, 50), run_id=KEPT))
CANARY = "RANKSCOPE-CANARY"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A collector on loopback without tokens: whoever attacks it is on this machine already."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "secret.txt").write_text(CANARY)
    limits = {
        "RANKSCOPE_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
        "RANKSCOPE_MAX_BODIES_BYTES": str(MAX_BODIES_BYTES),
        "RANKSCOPE_BODY_SECONDS": str(BODY_S),
        "RANKSCOPE_REQUESTS_PER_SECOND": "0",
    }
    with attacked(folder, **limits) as made:
        assert made.post_batch(GOOD).status_code == 200
        yield made


@pytest.fixture(autouse=True)
def unharmed(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every attack the collector answers, and what was stored is what is stored."""
    if "target" not in request.fixturenames:
        yield
        return
    target: Attacked = request.getfixturevalue("target")
    before = target.stored()
    yield
    assert target.alive()
    assert target.stored() == before
    assert before["spans"] == 50


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, authority: Pair) -> Iterator[Attacked]:
    """A collector with three tokens, over TLS."""
    folder = tmp_path_factory.mktemp("closed")
    ours = make_server(folder, authority)
    options = ("--no-dashboard", "--tls-cert", str(ours.certificate), "--tls-key", str(ours.key))
    with attacked(folder, *options, trusts=authority.certificate, **TOKENS) as made:
        yield made


@pytest.fixture
def trusting(authority: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_CA_FILE", str(authority.certificate))


# ---- who is let in


def test_over_tls_each_token_does_its_own_and_nothing_else(closed: Attacked) -> None:
    told: dict[str, list[int]] = {}
    with closed.http() as http:
        for name, token in {"none": "", "wrong": FULL[:-1], "full": FULL, "write": WRITE, "read": READ}.items():
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            typed = {**headers, "Content-Type": ARROW_TYPE}
            told[name] = [
                http.post("/v1/batches/spans", content=GOOD, headers=typed).status_code,
                http.post("/v1/query", json={"query": "Runs"}, headers=headers).status_code,
                http.get("/metrics", headers=headers).status_code,
                http.get("/healthz", headers=headers).status_code,
            ]
    assert told == {
        "none": [401, 401, 401, 200],
        "wrong": [401, 401, 401, 200],
        "full": [200, 200, 200, 200],
        "write": [200, 403, 403, 200],
        "read": [403, 200, 200, 200],
    }


def test_an_agent_ships_over_https_with_a_write_token_alone(
    closed: Attacked, tmp_path: Path, authority: Pair, trusting: None
) -> None:
    spool = tmp_path / "spool"
    writer = [sys.executable, "-m", "tests.integration.writer", str(spool), "0", "1", "3"]
    agent = [sys.executable, "-m", "telemetry.agent", "--spool", str(spool), "--collector", closed.url]
    ours = {**os.environ, "RANKSCOPE_WRITE_TOKEN": WRITE, "RANKSCOPE_CA_FILE": str(authority.certificate)}
    subprocess.run(writer, check=True, timeout=120)
    ended = subprocess.run(
        [*agent, "--interval", "0.1", "--sample", "0"],
        capture_output=True,
        text=True,
        timeout=120,
        env=ours,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    with CollectorClient(closed.url, READ) as reader:
        assert reader.read(Spans(run_id="chaos", attempt=0, first_step=0, last_step=2)).num_rows == 3 * 21
        with pytest.raises(UsageError, match="may only read"):
            reader.post("spans", of_run(numbered_spans(0, 1)))


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(closed: Attacked, tmp_path: Path) -> None:
    with CollectorClient(closed.url, READ) as client, pytest.raises(UnreachableError, match="RANKSCOPE_CA_FILE"):
        client.read(Runs())
    with CollectorClient(closed.url.replace("https", "http"), READ) as client, pytest.raises(UnreachableError):
        client.read(Runs())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_of_today_is_spoken(closed: Attacked, authority: Pair, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.minimum_version = context.maximum_version = version
    assert httpx.get(f"{closed.url}/healthz", verify=context, trust_env=False).status_code == 200


@pytest.mark.parametrize("name", ["TLSv1", "TLSv1_1"])
def test_tls_older_than_1_2_is_not_spoken(closed: Attacked, authority: Pair, name: str) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.set_ciphers("ALL:@SECLEVEL=0")  # this side would
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion[name]
    with closed.connected() as connection, pytest.raises(ssl.SSLError):
        context.wrap_socket(connection, server_hostname="127.0.0.1")


def test_no_token_is_in_a_log_an_error_or_the_list_of_processes(closed: Attacked, trusting: None) -> None:
    with CollectorClient(closed.url, "wrong-9e8d7c") as client, pytest.raises(UsageError) as told:
        client.read(Runs())
    seen = f"{told.value} {closed.said()} {closed.command_line()}"
    for token in (FULL, WRITE, READ, "wrong-9e8d7c"):
        assert token not in seen


def test_a_password_in_the_address_is_not_in_the_list_of_processes(tmp_path: Path) -> None:
    pid = spawn_agent(spool=tmp_path, run_id="run", attempt=0, collector="http://agent:hush-hush@127.0.0.1:9")
    try:
        until(lambda: "telemetry.agent" in command_line(pid), what="the agent")
        assert "hush" not in command_line(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()


def test_a_page_whose_name_was_made_to_lead_here_reads_nothing(target: Attacked) -> None:
    for path in ("/", "/metrics", "/healthz", "/_dash-layout", "/v1/query", "/_dash-ws"):
        with target.http(headers={"Host": f"evil.example:{target.port}"}) as http:
            assert http.get(path).status_code == 421, path
    upgrade = head("GET /_dash-ws", "Upgrade: websocket", "Connection: Upgrade, close", "Sec-WebSocket-Version: 13")
    assert statuses(target.raw(upgrade.replace(b"Host: 127.0.0.1", b"Host: evil.example"))) == [421]
    assert 101 not in statuses(target.raw(upgrade))


# ---- bodies


def test_a_giant_body_is_refused_before_it_is_sent(target: Attacked) -> None:
    for length, status in {MAX_BODY_BYTES + 1: 413, 10**12: 413, 10**30: 400}.items():
        with target.connected() as connection:
            connection.sendall(
                head("POST /v1/batches/spans", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {length}")
            )
            assert statuses(connection.recv(4096)) == [status], length


def test_a_giant_body_that_does_not_say_so_is_cut_off(target: Attacked) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(64):
            yield bytes(100_000)

    kinds = {
        "/v1/batches/spans": ARROW_TYPE,
        "/v1/query": "application/json",
        "/v1/traces": "application/x-protobuf",
        "/_dash-update-component": "application/json",
    }
    for path, kind in kinds.items():
        with target.http() as http:
            assert http.post(path, content=chunks(), headers={"Content-Type": kind}).status_code == 413, path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", [400]),
        (b"Content-Length: 5\r\nContent-Length: 6", [400]),
        (b"Content-Length: 5, 6", [400]),
        (b"Content-Length: -5", [400]),
        (b"Content-Length: +5", [400]),
        (b"Content-Length: 0x5", [400]),
        (b"Content-Length: 5 5", [400]),
        (b"Transfer-Encoding: xchunked", [400]),
        (b"Transfer-Encoding: chunked, identity", [400]),
        (b"Transfer-Encoding : chunked", [400]),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", [400]),
        (b"X: a\x00b", [400]),
        (b"X: a\r\n\tTransfer-Encoding: chunked\r\nY(: b", [400]),
        (b"X: " + b"a" * 200_000, [400]),
        (b"\r\n".join(b"X-%d: %s" % (n, b"a" * 100) for n in range(2000)), [400]),
    ],
    ids=lambda value: (
        value[:40].decode("latin-1").encode("unicode_escape").decode() if isinstance(value, bytes) else ""
    ),
)
def test_a_request_that_could_be_two_is_neither(target: Attacked, name: bytes, expected: list[int]) -> None:
    hidden = b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    request = b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + name + b"\r\n\r\n"
    answer = target.raw(request + hidden)
    assert statuses(answer) in (expected, []), answer[:300]
    assert b"rankscope_" not in answer


@pytest.mark.parametrize(
    "noise", [b"\0" * 500, b"\x16\x03\x01" + b"a" * 500, b"GET\r\n\r\n", b"x" * 100_000, b"\r\n" * 50_000]
)
def test_what_is_no_http_is_refused(target: Attacked, noise: bytes) -> None:
    assert set(statuses(target.raw(noise + b"\r\n\r\n"))) <= {400}


def test_a_body_shorter_than_it_says_is_given_up(target: Attacked) -> None:
    said = head("POST /v1/batches/spans", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {len(GOOD) + 1}")
    answer = target.raw(said + GOOD)
    assert statuses(answer) == [408]
    with target.connected() as connection:
        connection.sendall(said + GOOD)
        connection.shutdown(socket.SHUT_WR)
        assert 200 not in statuses(received(connection))


def test_a_body_longer_than_it_says_is_not_what_was_meant(target: Attacked) -> None:
    said = head("POST /v1/batches/spans", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {len(GOOD) - 8}")
    first, *rest = statuses(target.raw(said + GOOD))
    assert first in (200, 400)
    assert set(rest) <= {400}


def test_bombs_do_not_go_off(target: Attacked) -> None:
    before = target.rss_mib()
    zeros = gzip.compress(bytes(200_000_000))
    expected = {
        ("/v1/batches/spans", ARROW_TYPE): 415,
        ("/v1/query", "application/json"): 415,
        ("/v1/traces", "application/x-protobuf"): 413,
        ("/v1/logs", "application/json"): 413,
    }
    for (path, kind), status in expected.items():
        with target.http() as http:
            told = {"Content-Type": kind, "Content-Encoding": "gzip"}
            assert http.post(path, content=zeros, headers=told).status_code == status, path
    answer = target.post_batch(packed(numbered_zeros(5_000_000)))
    assert answer.status_code == 400
    assert "its buffers are compressed" in answer.json()["error"]
    deep = b'{"query": "Runs", "parameters": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for body, status in (
        (deep[:120_000], 400),
        (b'{"query": "Runs", "parameters": {"a": ' + b"9" * 100_000 + b"}}", 400),
    ):
        with target.http() as http:
            assert (
                http.post("/v1/query", content=body, headers={"Content-Type": "application/json"}).status_code == status
            )
    assert target.rss_mib() - before < MAX_GROWTH_MIB


def numbered_zeros(count: int) -> pa.Table:
    columns = [pa.array(np.zeros(count, field.type.to_pandas_dtype())) for field in SPANS]
    return of_run(pa.table(columns, schema=SPANS))


def packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(rows)
    body: bytes = sink.getvalue().to_pybytes()
    assert len(body) < MAX_BODY_BYTES
    return body


def test_many_bodies_at_once_take_no_more_than_their_share_of_memory(target: Attacked) -> None:
    before = target.rss_mib()
    part, length = bytes(MAX_BODY_BYTES - 10), MAX_BODY_BYTES
    said = head("POST /v1/batches/spans", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {length}")
    answers: list[int] = []
    with ExitStack() as open_until_then:
        connections = [open_until_then.enter_context(target.connected()) for _ in range(60)]
        for connection in connections:
            connection.sendall(said)
            connection.settimeout(10)
            with suppress(OSError):  # refused and cut off in the midst of it
                connection.sendall(part)
        assert target.rss_mib() - before < MAX_GROWTH_MIB
        for connection in connections:
            answers += statuses(received(connection))
    assert set(answers) <= {408, 429}
    assert 429 in answers


def test_many_slow_clients_hold_up_nobody_and_are_let_go(target: Attacked) -> None:
    before = target.rss_mib()
    said = head("POST /v1/batches/spans", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {len(GOOD)}")
    with ExitStack() as open_until_then:
        slow = [open_until_then.enter_context(target.connected()) for _ in range(300)]
        for number, connection in enumerate(slow):
            connection.sendall((said[:-2], said, said + GOOD[:100])[number % 3])
        assert target.post_batch(GOOD).json() == {"rows": 0, "duplicates": 50}
        assert target.alive()
        answers = [statuses(received(connection)) for connection in slow]
    assert answers == [[], [408], [408]] * 100
    assert target.rss_mib() - before < MAX_GROWTH_MIB


# ---- names and paths


@pytest.mark.parametrize(
    "path",
    [
        "/v1/batches/../../x", "/v1/batches/..", "/v1/batches/%2e%2e/%2e%2e/x", "/v1/batches/..%2f..%2fsecret.txt",
        "/v1/batches/spans/../marks", "//v1/batches/spans", "/v1//batches/spans", "/v1/batches/spans%00",
        "/v1/batches/spans;x", "/v1/batches/system.users", "/v1/batches/spans%20VALUES%20(1)--", "/V1/BATCHES/spans",
        "/v1/batches/" + "a" * 8000, "/v1/batches/%ff%fe", "/v1/batches/%F0%9F%92%A9", "http://evil.example/v1/batches/x",
    ],
)  # fmt: skip
def test_a_path_that_is_none_takes_no_rows(target: Attacked, path: str) -> None:
    said = head(f"POST {path}", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {len(GOOD)}", "Connection: close")
    (status,) = statuses(target.raw(said + GOOD))
    assert status in (400, 404, 405), path


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../../secret.txt", "/assets/..%2f..%2fsecret.txt", "/assets/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/assets//etc/passwd", "/assets/....//....//etc/passwd", "/assets/%252e%252e/%252e%252e/etc/passwd",
        "/_dash-component-suites/dash/../../../../../../../etc/passwd", "/_dash-component-suites/os/../../etc/passwd",
        "/_dash-component-suites/dash/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/../../../../etc/passwd", "/%00", "/assets/%00", "/_reload-hash", "/docs", "/openapi.json", "/redoc",
    ],
)  # fmt: skip
def test_a_path_leads_to_no_file_of_the_machine(target: Attacked, path: str) -> None:
    answer = target.raw(head(f"GET {path}", "Connection: close"))
    assert len(statuses(answer)) == 1
    assert b"root:" not in answer
    assert CANARY.encode() not in answer
    assert b"Traceback" not in answer


def test_a_name_that_is_sql_is_refused_and_asking_for_it_harms_nothing(target: Attacked) -> None:
    name = "x'; DROP TABLE spans; -- \\ %(run_id)s {a:String} ` \" \x00"
    with target.client() as client:
        with pytest.raises(UsageError, match="is not a valid run name"):
            client.post("spans", of_run(numbered_spans(0, 3), run_id=name))
        assert client.read(Spans(run_id=name, attempt=0, first_step=0, last_step=9)).num_rows == 0


# ---- garbage


def test_garbage_is_refused_wherever_it_is_sent(target: Attacked) -> None:
    before = target.rss_mib()
    asked = json.dumps(
        {"query": "Spans", "parameters": {"run_id": KEPT, "attempt": 0, "first_step": 0, "last_step": 9}}
    )
    sent = {
        ("/v1/batches/spans", ARROW_TYPE): encode(of_run(numbered_spans(0, 5), run_id="garbage")),
        ("/v1/query", "application/json"): asked.encode(),
        ("/v1/traces", "application/x-protobuf"): bytes.fromhex("0a0a120812060a0474657374"),
        ("/v1/metrics", "application/json"): b'{"resourceMetrics": [{"scopeMetrics": [{"metrics": []}]}]}',
        ("/v1/logs", "application/x-protobuf"): b"\x0a\x04\x12\x02\x12\x00",
        ("/_dash-update-component", "application/json"): b'{"output": "page.children", "inputs": [], "state": []}',
    }
    rng, found = random.Random(7), set()
    with target.http() as http:
        for (path, kind), good in sent.items():
            for _ in range(60):
                answer = http.post(path, content=damaged(rng, good), headers={"Content-Type": kind})
                found.add((path, answer.status_code))
                assert "Traceback" not in answer.text
    assert {status for path, status in found if path.startswith("/v1/")} <= {200, 400, 413, 415}
    assert {status for path, status in found if path.startswith("/_dash")} <= {200, 204, 400, 404, 422, 500}
    assert target.rss_mib() - before < MAX_GROWTH_MIB


def test_a_log_is_not_filled_by_strangers(target: Attacked) -> None:
    assert len(target.said()) < 100_000
    assert httpx.get(f"{target.url}/healthz", verify=False).status_code == 200
