"""Attacks on a real collector are refused with the right status. They harm neither the store nor the collector."""

import gzip
import json
import os
import random
import signal
import socket
import ssl
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
from tests.integration.processes import Part
from tests.telemetry.made_rows import numbered_spans, of_run

FULL, WRITE, READ = "full-5f3a9c", "write-77b1e0", "read-0d44fe"
TOKENS = {"RANKSCOPE_TOKEN": FULL, "RANKSCOPE_WRITE_TOKEN": WRITE, "RANKSCOPE_READ_TOKEN": READ}
MAX_BODY_BYTES = 2_000_000
MAX_BODIES_BYTES = 16_000_000
BODY_S = 2
MAX_GROWTH_MIB = 200
GOOD = encode(of_run(numbered_spans(0, 50), run_id=KEPT))
CANARY = "RANKSCOPE-CANARY"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A collector on loopback without tokens. Its attackers are already on this machine."""
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
    """After every attack, the collector answers and the stored rows are unchanged."""
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
    with attacked(folder, *options, trusts=authority.certificate, forks=False, **TOKENS) as made:
        yield made


@pytest.fixture
def trusting(authority: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_CA_FILE", str(authority.certificate))


# ---- access


def test_each_token_permits_only_its_own_requests_over_tls(closed: Attacked) -> None:
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


def test_agent_ships_over_https_with_only_a_write_token(
    closed: Attacked, tmp_path: Path, trusting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = str(tmp_path / "spool")
    writer = Part("writer", [sys.executable, "-m", "tests.integration.writer", spool, "0", "1", "3"], tmp_path / "log")
    options = ["--spool", spool, "--collector", closed.url, "--interval", "0.1", "--sample", "0"]
    agent = Part("agent", [sys.executable, "-m", "telemetry.agent", *options], tmp_path / "agent.log")
    monkeypatch.setenv("RANKSCOPE_WRITE_TOKEN", WRITE)
    for part in (writer, agent):
        part.start()
        assert part.wait(120) == 0, part.said()
    with CollectorClient(closed.url, READ) as reader:
        assert reader.read(Spans(run_id="chaos", attempt=0, first_step=0, last_step=2)).num_rows == 3 * 21
        with pytest.raises(UsageError, match="may only read"):
            reader.post("spans", of_run(numbered_spans(0, 1)))


def test_certificate_of_an_unknown_authority_is_not_trusted(closed: Attacked, tmp_path: Path) -> None:
    with CollectorClient(closed.url, READ) as client, pytest.raises(UnreachableError, match="RANKSCOPE_CA_FILE"):
        client.read(Runs())
    with CollectorClient(closed.url.replace("https", "http"), READ) as client, pytest.raises(UnreachableError):
        client.read(Runs())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_accepted(closed: Attacked, authority: Pair, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.minimum_version = context.maximum_version = version
    assert httpx.get(f"{closed.url}/healthz", verify=context, trust_env=False).status_code == 200


@pytest.mark.parametrize("name", ["TLSv1", "TLSv1_1"])
def test_tls_older_than_1_2_is_refused(closed: Attacked, authority: Pair, name: str) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.set_ciphers("ALL:@SECLEVEL=0")  # the client would accept it
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


def test_request_with_a_foreign_host_header_is_refused(target: Attacked) -> None:
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


def test_giant_body_without_a_content_length_is_refused(target: Attacked) -> None:
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


AMBIGUOUS = (
    b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Content-Length: 5, 6",
    b"Content-Length: -5",
    b"Content-Length: +5",
    b"Content-Length: 0x5",
    b"Content-Length: 5 5",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"X: a\x00b",
    b"X: a\r\n\tTransfer-Encoding: chunked\r\nY(: b",
    b"X: " + b"a" * 200_000,
    b"\r\n".join(b"X-%d: %s" % (n, b"a" * 100) for n in range(2000)),
)


def test_ambiguous_request_that_hides_a_second_request_is_refused(target: Attacked) -> None:
    hidden = b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    begin = b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    for headers in AMBIGUOUS:
        answer = target.raw(begin + headers + b"\r\n\r\n" + hidden)
        assert statuses(answer) in ([400], []), (headers[:60], answer[:300])
        assert b"rankscope_" not in answer, headers[:60]


def test_bytes_that_are_not_http_are_refused(target: Attacked) -> None:
    for noise in (b"\0" * 500, b"\x16\x03\x01" + b"a" * 500, b"GET\r\n\r\n", b"x" * 100_000, b"\r\n" * 50_000):
        assert set(statuses(target.raw(noise + b"\r\n\r\n"))) <= {400}, noise[:10]


def test_body_shorter_than_its_content_length_is_refused_after_a_timeout(target: Attacked) -> None:
    said = head("POST /v1/batches/spans", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {len(GOOD) + 1}")
    answer = target.raw(said + GOOD)
    assert statuses(answer) == [408]
    with target.connected() as connection:
        connection.sendall(said + GOOD)
        connection.shutdown(socket.SHUT_WR)
        assert 200 not in statuses(received(connection))


def test_bytes_after_the_content_length_are_not_accepted_as_a_request(target: Attacked) -> None:
    said = head("POST /v1/batches/spans", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {len(GOOD) - 8}")
    first, *rest = statuses(target.raw(said + GOOD))
    assert first in (200, 400)
    assert set(rest) <= {400}


def test_compressed_bombs_and_nested_bodies_are_refused_with_bounded_memory(target: Attacked) -> None:
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


def test_many_concurrent_bodies_use_bounded_memory(target: Attacked) -> None:
    before = target.rss_mib()
    part, length = bytes(MAX_BODY_BYTES - 10), MAX_BODY_BYTES
    said = head("POST /v1/batches/spans", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {length}")
    answers: list[int] = []
    with ExitStack() as open_until_then:
        connections = [open_until_then.enter_context(target.connected()) for _ in range(60)]
        for connection in connections:
            connection.sendall(said)
            connection.settimeout(10)
            with suppress(OSError):  # the collector refuses the body and closes the connection early
                connection.sendall(part)
        assert target.rss_mib() - before < MAX_GROWTH_MIB
        for connection in connections:
            answers += statuses(received(connection))
    assert set(answers) <= {408, 429}
    assert 429 in answers


def test_many_slow_clients_do_not_block_others_and_are_disconnected(target: Attacked) -> None:
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


PATHS_OF_NO_TABLE = (
    "/v1/batches/../../x", "/v1/batches/..", "/v1/batches/%2e%2e/%2e%2e/x", "/v1/batches/..%2f..%2fsecret.txt",
    "/v1/batches/spans/../marks", "//v1/batches/spans", "/v1//batches/spans", "/v1/batches/spans%00",
    "/v1/batches/spans;x", "/v1/batches/system.users", "/v1/batches/spans%20VALUES%20(1)--", "/V1/BATCHES/spans",
    "/v1/batches/" + "a" * 8000, "/v1/batches/%ff%fe", "/v1/batches/%F0%9F%92%A9", "http://evil.example/v1/batches/x",
)  # fmt: skip
PATHS_OF_NO_FILE = (
    "/assets/../../secret.txt", "/assets/..%2f..%2fsecret.txt", "/assets/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/assets//etc/passwd", "/assets/....//....//etc/passwd", "/assets/%252e%252e/%252e%252e/etc/passwd",
    "/_dash-component-suites/dash/../../../../../../../etc/passwd", "/_dash-component-suites/os/../../etc/passwd",
    "/_dash-component-suites/dash/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/../../../../etc/passwd", "/%00", "/assets/%00", "/_reload-hash", "/docs", "/openapi.json", "/redoc",
)  # fmt: skip


def test_invalid_batch_path_accepts_no_rows(target: Attacked) -> None:
    for path in PATHS_OF_NO_TABLE:
        said = head(f"POST {path}", f"Content-Type: {ARROW_TYPE}", f"Content-Length: {len(GOOD)}", "Connection: close")
        (status,) = statuses(target.raw(said + GOOD))
        assert status in (400, 404, 405), path


def test_path_traversal_reads_no_file_of_the_machine(target: Attacked) -> None:
    for path in PATHS_OF_NO_FILE:
        answer = target.raw(head(f"GET {path}", "Connection: close"))
        assert len(statuses(answer)) == 1, path
        assert b"root:" not in answer, path
        assert CANARY.encode() not in answer, path
        assert b"Traceback" not in answer, path


def test_sql_as_a_run_name_is_refused_and_a_query_for_it_does_no_harm(target: Attacked) -> None:
    name = "x'; DROP TABLE spans; -- \\ %(run_id)s {a:String} ` \" \x00"
    with target.client() as client:
        with pytest.raises(UsageError, match="is not a valid run name"):
            client.post("spans", of_run(numbered_spans(0, 3), run_id=name))
        assert client.read(Spans(run_id=name, attempt=0, first_step=0, last_step=9)).num_rows == 0


# ---- garbage


def test_damaged_bodies_are_refused_at_every_endpoint(target: Attacked) -> None:
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


def test_attacks_do_not_fill_the_log_of_the_collector(target: Attacked) -> None:
    assert len(target.said()) < 100_000
    assert httpx.get(f"{target.url}/healthz", verify=False).status_code == 200
