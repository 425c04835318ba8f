"""Access to a server: tokens, host names, rate limits and TLS, and the settings for them."""

import os
import ssl
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from telemetry.collector.gates import Buckets, network_of, without_port
from telemetry.collector.guard import MALFORMED, declared_length
from telemetry.collector.serving import configured
from telemetry.collector.settings import CollectorSettings, ServerSettings
from telemetry.credentials import Tokens, check_pair, read_secret, trusted
from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from tests.certificates import lock, make_authority, make_server
from tests.each_case import each_case
from tests.telemetry.served import collecting

TOKENS = {"token": "all", "write_token": "in", "read_token": "out"}


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RANKSCOPE_")]:
        monkeypatch.delenv(name)


def test_each_token_opens_its_own_routes_and_no_others(embedded: EmbeddedStore) -> None:
    statuses: dict[str, dict[str, int]] = {}
    with collecting(embedded, **TOKENS) as client, httpx.Client(base_url=client.url, verify=False) as http:
        for token in ("all", "in", "out", "wrong"):
            told = {"Authorization": f"Bearer {token}"}
            statuses[token] = {
                "batch": http.post("/v1/batches/spans", content=b"", headers=told).status_code,
                "otlp": http.post("/v1/logs", content=b"", headers=told).status_code,
                "question": http.post("/v1/query", json={"query": "Runs"}, headers=told).status_code,
                "counters": http.get("/metrics", headers=told).status_code,
                "clock": http.get("/v1/clock", headers=told).status_code,
                "health": http.get("/healthz", headers=told).status_code,
            }
    let_in = {"batch": 415, "otlp": 415, "question": 200, "counters": 200, "clock": 200, "health": 200}
    assert statuses["all"] == let_in
    assert statuses["in"] == {**let_in, "question": 403, "counters": 403}
    assert statuses["out"] == {**let_in, "batch": 403, "otlp": 403}
    assert statuses["wrong"] == {**dict.fromkeys(let_in, 401), "health": 200}


def test_a_refused_client_receives_the_name_of_the_variable_that_permits_access(embedded: EmbeddedStore) -> None:
    def hint(token: str, path: str) -> str:
        told = {"Authorization": f"Bearer {token}"}
        answer = http.get(path, headers=told) if path == "/metrics" else http.post(path, content=b"", headers=told)
        return str(answer.json()["hint"])

    with collecting(embedded, **TOKENS) as client, httpx.Client(base_url=client.url, verify=False) as http:
        assert hint("in", "/metrics") == "use the collector's RANKSCOPE_READ_TOKEN, or its RANKSCOPE_TOKEN"
        assert hint("out", "/v1/logs") == "use the collector's RANKSCOPE_WRITE_TOKEN, or its RANKSCOPE_TOKEN"
        assert hint("wrong", "/metrics").startswith("set RANKSCOPE_READ_TOKEN or RANKSCOPE_TOKEN to the collector's")
        assert hint("wrong", "/v1/logs").startswith("set RANKSCOPE_WRITE_TOKEN or RANKSCOPE_TOKEN to the collector's")


def test_client_uses_the_write_and_read_tokens_unless_a_full_token_is_set() -> None:
    both = Tokens.from_environment({"RANKSCOPE_WRITE_TOKEN": "in", "RANKSCOPE_READ_TOKEN": "out"})
    assert (both.to_write, both.to_read) == ("in", "out")
    full = Tokens.from_environment({"RANKSCOPE_TOKEN": "all", "RANKSCOPE_READ_TOKEN": "out"})
    assert (full.to_write, full.to_read) == ("all", "all")


def test_tokens_do_not_appear_in_the_text_of_settings() -> None:
    settings = CollectorSettings.checked(token="hush-hush")
    assert "hush" not in f"{settings!r} {settings} {settings.tokens!r} {settings.tokens}"


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hush\n")
    assert read_secret("A", {"A_FILE": str(tmp_path / "token")}) == "hush"
    assert read_secret("A", {}) == ""


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"A": "x", "A_FILE": "{folder}/good"}, "both set"),
        ({"A_FILE": "{folder}/missing"}, "No such file"),
        ({"A_FILE": "{folder}"}, "Is a directory"),
        ({"A_FILE": "{folder}/empty"}, "is empty"),
        ({"A_FILE": "{folder}/long"}, "Larger than"),
        ({"A_FILE": "{folder}/lines"}, "beyond ASCII"),
        ({"A": "schlüssel"}, "beyond ASCII"),
    ],
)
def test_error_for_an_invalid_secret_gives_the_reason_and_does_not_show_the_secret(
    tmp_path: Path, environment: dict[str, str], reason: str
) -> None:
    for name, text in {"good": "hush", "empty": "\n", "long": "hush" * 2000, "lines": "hush\r\nX: y"}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=reason) as told:
        read_secret("A", {name: value.format(folder=tmp_path) for name, value in environment.items()})
    assert "hush" not in str(told.value)
    assert "schlüssel" not in str(told.value)


@each_case("token", ["token", "write_token", "read_token"])
def test_server_on_a_non_loopback_address_requires_one_of_the_tokens(token: str) -> None:
    with pytest.raises(UsageError, match="needs a token: set RANKSCOPE_TOKEN, or RANKSCOPE_WRITE_TOKEN"):
        ServerSettings.checked(host="0.0.0.0")
    assert ServerSettings.checked(host="0.0.0.0", **{token: "x"}).tokens


def test_equal_tokens_raise_an_error_that_does_not_show_them() -> None:
    with pytest.raises(UsageError, match="are the same") as told:
        ServerSettings.checked(write_token="hush", read_token="hush")
    assert "hush" not in str(told.value)


@each_case("name", ["https://scope.example", "scope.example:8719", "scope.example/runs"])
def test_allowed_host_that_is_not_a_host_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a host name"):
        ServerSettings.checked(allowed_hosts=f"other.example,{name}")


HOSTS = {
    "127.0.0.1:{port}": 200,
    "127.8.8.8": 200,
    "localhost:{port}": 200,
    "LocalHost.": 200,
    "runs.localhost:{port}": 200,
    "[::1]:{port}": 200,
    "scope.example:443": 200,
    "evil.example:{port}": 421,
    "evil.example": 421,
    "localhost.evil.example": 421,
    "127.0.0.1.evil.example": 421,
    "evil.example:80@localhost": 421,
    "192.168.0.1:{port}": 421,
    "": 421,
}
"""Host header -> status."""


def test_without_a_token_only_local_and_allowed_host_names_are_accepted(embedded: EmbeddedStore) -> None:
    with collecting(embedded, allowed_hosts="other.example, scope.example") as client:
        port = httpx.URL(client.url).port
        for host, status in HOSTS.items():
            answer = httpx.get(f"{client.url}/metrics", headers={"Host": host.format(port=port)}, verify=False)
            assert answer.status_code == status, host


def test_with_a_token_any_host_name_is_accepted_unless_allowed_hosts_are_set(embedded: EmbeddedStore) -> None:
    told = {"Host": "scope.example", "Authorization": "Bearer all"}
    with collecting(embedded, **TOKENS) as client:
        assert httpx.get(f"{client.url}/metrics", headers=told, verify=False).status_code == 200
    with collecting(embedded, **TOKENS, allowed_hosts="other.example") as client:
        assert httpx.get(f"{client.url}/metrics", headers=told, verify=False).status_code == 421


def test_post_request_from_a_page_of_another_site_is_refused(embedded: EmbeddedStore) -> None:
    with collecting(embedded) as client, httpx.Client(base_url=client.url, verify=False) as http:
        for site, status in {"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200}.items():
            answer = http.post("/v1/query", json={"query": "Runs"}, headers={"Sec-Fetch-Site": site})
            assert answer.status_code == status, site
        assert http.get("/metrics", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


@each_case(
    ("header", "name"),
    [("A.example:1", "a.example"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("a.", "a"), ("a.:80", "a"), ("", "")],
)
def test_a_host_header_is_read_without_its_port(header: str, name: str) -> None:
    assert without_port(header) == name


def test_rate_limit_permits_each_address_its_rate_and_one_burst() -> None:
    buckets = Buckets(10.0)
    assert [buckets.take("a", 0.0) for _ in range(21)] == [True] * 20 + [False]
    assert buckets.take("b", 0.0)
    assert not buckets.take("a", 0.05)
    assert buckets.take("a", 0.15)
    assert [buckets.take("a", 100.0) for _ in range(21)] == [True] * 20 + [False]


def test_rate_limit_keeps_a_bounded_number_of_addresses() -> None:
    buckets = Buckets(10.0, max_addresses=100)
    for number in range(1000):
        buckets.take(str(number), number / 1000)
    assert len(buckets) == 100


def test_ipv6_addresses_of_one_network_count_as_one_client() -> None:
    assert network_of(("2001:db8:1:2::1", 1)) == network_of(("2001:db8:1:2:ffff::9%eth0", 2))
    assert network_of(("2001:db8:1:3::1", 1)) != network_of(("2001:db8:1:2::1", 1))
    assert network_of(("10.0.0.1", 1)) != network_of(("10.0.0.2", 1))


def test_a_client_with_too_many_requests_receives_the_time_to_retry(embedded: EmbeddedStore) -> None:
    with (
        collecting(embedded, requests_per_second=0.01) as client,
        httpx.Client(base_url=client.url, verify=False) as http,
    ):
        answers = [http.get("/healthz", headers={"X-Forwarded-For": f"10.0.0.{n}"}) for n in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        assert answers[-1].headers["Retry-After"] == "1"


@each_case(
    ("headers", "length"),
    [
        ([], 0),
        ([(b"content-length", b"12")], 12),
        ([(b"transfer-encoding", b"chunked")], 0),
        ([(b"content-length", b"9" * 5000)], 10**20 - 1),
        ([(b"content-length", b"1"), (b"content-length", b"2")], MALFORMED),
        ([(b"content-length", b"1"), (b"transfer-encoding", b"chunked")], MALFORMED),
        ([(b"content-length", b"-1")], MALFORMED),
        ([(b"content-length", b"1_0")], MALFORMED),
    ],
)
def test_body_length_is_read_from_headers_and_conflicting_headers_are_malformed(
    headers: list[tuple[bytes, bytes]], length: int
) -> None:
    assert declared_length(headers) == length


def test_invalid_pair_of_certificate_and_key_raises_an_error_with_its_cause(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    ours, other = make_server(tmp_path, authority), make_server(tmp_path, authority, "other")
    check_pair(ours.certificate, ours.key)
    with pytest.raises(UsageError, match="is not the key of"):
        check_pair(ours.certificate, other.key)
    with pytest.raises(UsageError, match=r"cannot read the key .*No such file"):
        check_pair(ours.certificate, tmp_path / "none")
    with pytest.raises(UsageError, match="not a certificate and its key"):
        check_pair(ours.key, ours.certificate)
    with pytest.raises(UsageError, match="has a password"):
        check_pair(ours.certificate, lock(ours, "hush"))


def test_server_and_client_require_at_least_tls_1_2(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    ours = make_server(tmp_path, authority)
    server = configured(FastAPI(), ServerSettings.checked(tls_cert=ours.certificate, tls_key=ours.key)).ssl
    client = trusted({"RANKSCOPE_CA_FILE": str(authority.certificate)})
    assert [one.minimum_version for one in (server, client) if one] == [ssl.TLSVersion.TLSv1_2] * 2


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both the certificate and its key"):
        ServerSettings.checked(tls_cert=tmp_path / "server.pem")


def test_ca_file_that_is_missing_or_has_no_certificate_raises_usage_error(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert trusted({}) is None
    with pytest.raises(UsageError, match="no certificate"):
        trusted({"RANKSCOPE_CA_FILE": str(tmp_path / "empty")})
    with pytest.raises(UsageError, match="No such file"):
        trusted({"RANKSCOPE_CA_FILE": str(tmp_path / "missing")})
