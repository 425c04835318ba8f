"""Store addresses with one or several servers: failover, pauses, TLS and read-only users."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_driver.errors import ErrorCodes, NetworkError, ServerException

from telemetry.errors import UnreachableError, UsageError
from telemetry.stores import servers
from telemetry.stores.address import Host, ServerAddress, parse_address
from telemetry.stores.driver import Connection
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.open import open_store
from telemetry.stores.queries import Spans
from telemetry.stores.servers import LONGEST_PAUSE_S, Servers
from tests.certificates import make_authority, make_server
from tests.clickhouse_server import PASSWORD, PASSWORD_IN_URL, READER, USER, ClickHouseServer, running_server
from tests.each_case import each_case
from tests.telemetry.made_rows import insert, numbered_spans
from ui.cli.readers import open_reader


def count(store: Store) -> int:
    number: int = store.query("SELECT count() AS n FROM spans")["n"][0].as_py()
    return number


# Addresses.


def test_store_address_can_name_several_servers_of_any_kind() -> None:
    address = parse_address("clickhouse://me@a:9001,[::1]:9002,b/d?cluster=big")
    assert address.hosts == (Host(name="a", port=9001), Host(name="::1", port=9002), Host(name="b", port=9000))
    assert (address.database, address.cluster) == ("d", "big")
    assert str(address) == "clickhouse://a:9001,[::1]:9002,b:9000/d"


def test_store_password_is_read_from_the_environment_or_a_file_and_never_printed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("fr@m-file\n")
    from_file = parse_address("clickhouse://me@h/d", {"RANKSCOPE_STORE_PASSWORD_FILE": str(tmp_path / "secret")})
    told = parse_address("clickhouse://me@h/d", {"RANKSCOPE_STORE_PASSWORD": "t0ld"})
    written = parse_address("clickhouse://me:wr1tten@h/d", {"RANKSCOPE_STORE_PASSWORD": "t0ld"})
    assert [one.password for one in (from_file, told, written)] == ["fr@m-file", "t0ld", "wr1tten"]
    assert not any(one.password in f"{one} {one!r}" for one in (from_file, told, written))


@each_case(
    ("url", "told"),
    [
        ("clickhouse://h/d?clutser=x", "unknown option 'clutser'"),
        ("clickhouse://h/d?cluster=a-b", "cluster 'a-b' is not a valid name"),
        ("clickhouse://h/d?verify=0", "need TLS"),
        ("clickhouses://h/d?verify=maybe", "verify=maybe"),
        ("clickhouses://h/d?ca_certs=/no/such/file", "no file '/no/such/file'"),
        ("clickhouse://a,,b/d", "no host"),
        ("clickhouse://a:9000,b:port/d", "invalid host or port"),
    ],
)
def test_error_about_an_invalid_store_address_names_the_problem(url: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_address(url, {})


@pytest.mark.parametrize("url", ["clickhouse://me:12/secret@h/d", "clickhouse://me:12?secret=1@h/d"])
def test_unescaped_password_is_refused_and_not_repeated_in_the_error(url: str) -> None:
    with pytest.raises(UsageError, match="%2F") as refused:
        parse_address(url, {})
    assert "secret" not in str(refused.value)


# Failover, with fake servers and a manual clock.


class World:
    """A manual clock, and fake servers that answer or fail as set in ``faults``."""

    def __init__(self, *names: str) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.asked: list[str] = []
        self.faults: dict[str, Exception] = {}
        address = ServerAddress(hosts=tuple(Host(name=name, port=1) for name in names))
        self.servers = Servers(address, clock=lambda: self.now, wait=self.wait)

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def answer(self, connection: Connection) -> None:
        (name, _), *_ = connection.connection.hosts
        self.asked.append(name)
        if name in self.faults:
            raise self.faults[name]

    def connect(self) -> list[str]:
        """Connect. Return the servers that were tried, and the message of the error if it failed."""
        self.asked = []
        try:
            self.servers.connect(self.answer)
        except UnreachableError as error:
            self.asked.append(error.message)
        return self.asked


@pytest.fixture
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers.random, "uniform", lambda low, high: high)


def test_next_server_is_tried_when_one_fails_and_is_tried_first_from_then_on() -> None:
    world = World("a", "b")
    assert world.connect() == ["a"]
    world.faults["a"] = NetworkError("away")
    assert world.connect() == ["a", "b"]
    assert world.connect() == ["b"]
    del world.faults["a"]
    world.faults["b"] = EOFError()
    world.now += LONGEST_PAUSE_S
    assert world.connect() == ["b", "a"]


def test_server_whose_replica_is_behind_is_tried_last() -> None:
    world = World("a", "b")
    world.servers.prefer_next()
    assert world.connect() == ["b"]


@pytest.mark.usefixtures("no_jitter")
def test_pause_before_each_try_grows_up_to_a_limit_while_no_server_answers() -> None:
    world = World("a")
    world.faults["a"] = NetworkError("away")
    for _ in range(8):
        assert world.connect()[-1] == "clickhouse://a:1/rankscope: no server answers: a:1: Code: 210. away"
    assert world.waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, LONGEST_PAUSE_S, LONGEST_PAUSE_S])
    del world.faults["a"]
    world.connect()
    assert world.connect() == ["a"]
    assert len(world.waits) == 8


def test_many_collectors_retry_at_different_moments() -> None:
    worlds = [World("a") for _ in range(20)]
    for world in worlds:
        world.faults["a"] = NetworkError("away")
        world.connect()
        world.connect()
    pauses = [world.waits[0] for world in worlds]
    assert len(set(pauses)) == len(pauses)
    assert all(0.05 <= pause <= 0.1 for pause in pauses)


@each_case("code", [ErrorCodes.WRONG_PASSWORD, 516, ErrorCodes.UNKNOWN_DATABASE])
def test_permanent_refusal_of_one_server_is_not_retried_on_the_next_server(code: int) -> None:
    world = World("a", "b")
    world.faults["a"] = ServerException("no", code)
    assert world.connect() == ["a", f"clickhouse://a:1,b:1/rankscope: Code: {code}. no"]


# Real servers.


def use_several_connections(store: Store) -> None:
    """Open several connections. They are idle afterwards."""
    threads = [threading.Thread(target=store.query, args=("SELECT sleep(0.3) AS n",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture
def pair() -> Iterator[tuple[ClickHouseServer, ClickHouseServer]]:
    with running_server() as first, running_server() as second:
        yield first, second


@pytest.mark.clickhouse
def test_second_server_answers_when_the_first_is_killed(pair: tuple[ClickHouseServer, ClickHouseServer]) -> None:
    """The servers share no data, so the number of rows shows which server answered."""
    first, second = pair
    for server, seqs in ((first, 10), (second, 20)):
        alone = open_store(server.url("both"))
        insert(alone, "spans", numbered_spans(0, seqs))
        alone.close()
    store = open_store(f"clickhouse://{USER}:{PASSWORD_IN_URL}@127.0.0.1:{first.port},127.0.0.1:{second.port}/both")
    use_several_connections(store)
    assert count(store) == 10
    first.kill()
    assert count(store) == 20
    insert(store, "spans", numbered_spans(20, 5))
    assert count(store) == 25
    first.start()
    second.kill()
    assert count(store) == 10
    store.close()


@pytest.mark.clickhouse
def test_error_about_a_wrong_password_does_not_contain_the_password(clickhouse_server: ClickHouseServer) -> None:
    with pytest.raises(UnreachableError, match="RANKSCOPE_STORE_PASSWORD") as refused:
        open_store(f"clickhouse://{USER}:s3cret@127.0.0.1:{clickhouse_server.port}/database")
    assert "s3cret" not in str(refused.value)


@pytest.mark.clickhouse
def test_read_only_user_can_query_but_cannot_open_the_store_for_writing(clickhouse_server: ClickHouseServer) -> None:
    owner = open_store(clickhouse_server.url("read_only"))
    insert(owner, "spans", numbered_spans(0, 30))
    address = clickhouse_server.url("read_only", user=READER)
    with open_reader(address) as reader:
        question = Spans(run_id="run", attempt=0, first_step=0, last_step=9)
        assert reader.read(question).num_rows == 30
    limited = open_store(address, for_reading=True)
    assert StoreReader(limited, max_seconds=5).read(question).num_rows == 30
    limited.close()
    with pytest.raises(UnreachableError, match="readonly"):
        open_store(address)
    assert count(owner) == 30
    owner.close()


@pytest.mark.clickhouse
def test_reader_does_not_create_a_missing_database(clickhouse_server: ClickHouseServer) -> None:
    with pytest.raises(UnreachableError, match="rankscope collect"), open_reader(clickhouse_server.url("nowhere")):
        pass
    with pytest.raises(UnreachableError, match="nowhere"):
        open_store(clickhouse_server.url("nowhere"), for_reading=True)


@pytest.mark.clickhouse
def test_tls_requires_a_certificate_of_a_trusted_authority_unless_verify_is_0(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    with running_server(make_server(tmp_path, authority)) as server:
        address = f"clickhouses://{USER}:{PASSWORD_IN_URL}@127.0.0.1:{server.tls_port}/secure"
        with pytest.raises(UnreachableError, match="hint: give the file with the CA of the server"):
            open_store(address)
        store = open_store(f"{address}?ca_certs={authority.certificate}")
        insert(store, "spans", numbered_spans(0, 1000))
        assert count(store) == 1000
        store.close()
        unchecked = open_store(f"{address}?verify=0")
        assert count(unchecked) == 1000
        unchecked.close()
        with pytest.raises(UnreachableError, match="no server answers") as plain:
            open_store(f"clickhouses://{USER}:{PASSWORD_IN_URL}@127.0.0.1:{server.port}/secure")
        assert PASSWORD not in str(plain.value)
