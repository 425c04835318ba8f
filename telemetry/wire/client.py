"""The client of the collector's HTTP interface: queries and batches, from any process.

One table maps errors to HTTP statuses. The collector uses it to answer, and the client uses it to raise.
"""

import ssl
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx
import pyarrow as pa

from telemetry.credentials import Tokens, trusted
from telemetry.errors import (
    AheadError,
    JumpError,
    RankscopeError,
    RefusedRowsError,
    TakenNameError,
    UnannouncedError,
    UnreachableError,
    UsageError,
)
from telemetry.plain_errors import without_errno
from telemetry.stores.address import checked_collector, is_loopback, without_password
from telemetry.stores.interface import Query
from telemetry.wire.annotation import Annotation, encode_annotation
from telemetry.wire.codec import ARROW_TYPE, JSON_TYPE, Ack, decode, encode, encode_query
from telemetry.wire.finding_action import FindingAction, encode_action
from telemetry.wire.profile_order import ProfileOrder, encode_order, open_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorTime:
    """The answer of ``GET /v1/clock``: wall clock of the collector, nanoseconds since the epoch."""

    collector: str
    """Name of the collector. Several collectors may answer at one address, each with its own clock."""
    received_ns: int
    """Time of the request."""
    answered_ns: int
    """Time of the answer."""

    @classmethod
    def of(cls, answer: Any) -> Self:
        """The time in the JSON of an answer.

        Raises:
            ValueError: the answer has no valid time.
        """
        try:
            clock = cls(
                collector=str(answer["collector"]),
                received_ns=int(answer["received_ns"]),
                answered_ns=int(answer["answered_ns"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"the answer has no time: {str(answer)[:100]}") from error
        if not 0 <= clock.received_ns <= clock.answered_ns < 2**62:
            raise ValueError(f"received at {clock.received_ns}, answered at {clock.answered_ns}")
        return clock


STATUS_OF: dict[type[RankscopeError], int] = {
    TakenNameError: 409,
    JumpError: 416,
    AheadError: 425,
    UnannouncedError: 428,
}
ERROR_OF = {status: error for error, status in STATUS_OF.items()}


CONNECT_S = 5.0
ANSWER_S = 120.0
TIME_S = 2.0
IDLE_S = 3.0
"""A connection that was idle for longer is not used again. The collector closes it after 5 s, maybe while a request is
sent."""
LATER = (408, 429, 500, 502, 503, 504)
"""Statuses after which the same request may succeed later. 408: this process paused while it sent. 500: a fault of the
collector."""


class CollectorClient:
    """Answers typed queries through a collector (a ``Reader``), and posts batches to it. For any thread.

    Args:
        url: ``http://host:port``, or ``https://`` with the certificates in ``RANKSCOPE_CA_FILE``.
        token: the token to send. If None, the tokens in the environment are used (``telemetry/credentials.py``).

    Raises:
        UnreachableError: from every method but :meth:`healthy`: no answer, or a retry may succeed later.
        UsageError: the request is refused permanently: a wrong token, an unknown query, rows out of order.
        RefusedRowsError: from :meth:`post`: these rows are refused permanently. Rows of other runs may be stored.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        tokens = Tokens.from_environment() if token is None else Tokens(full=token)
        self._to_read = _bearer(tokens.to_read)
        self._to_write = {**_bearer(tokens.to_write), "Content-Type": ARROW_TYPE}
        host = _host_of(url)
        self._http = httpx.Client(
            base_url=self.url,
            verify=trusted() or _system_certificates(url),
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_S),
            # Requests to this machine never use a proxy.
            trust_env=not is_loopback(host),
        )

    def read(self, query: Query) -> pa.Table:
        """The rows of ``query``, with the columns its docstring names."""
        answer = self._post("/v1/query", headers=self._to_read, json=encode_query(query))
        try:
            return decode(answer.content)
        except UsageError as error:
            raise self._no_collector(error.message) from error

    def post(self, table: str, rows: pa.Table) -> Ack:
        """Store ``rows``, with run and attempt in the metadata of the schema. They are stored when this returns."""
        answer = self._post(f"/v1/batches/{table}", headers=self._to_write, content=encode(rows))
        try:
            counts = answer.json()
            profiles = open_requests(counts.get("profiles", []))
            return Ack(rows=int(counts["rows"]), duplicates=int(counts["duplicates"]), profiles=profiles)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._no_collector("it did not confirm that the rows are stored") from error

    def order_profile(self, order: ProfileOrder) -> str:
        """Order a profile of running ranks. Returns its id."""
        answer = self._post(
            "/v1/profiles", headers={**self._to_write, "Content-Type": JSON_TYPE}, json=encode_order(order)
        )
        try:
            return str(answer.json()["profile_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._no_collector("it did not name the profile") from error

    def act(self, action: FindingAction) -> str:
        """Store what a person did about a finding. Returns the id of the action."""
        headers = {**self._to_write, "Content-Type": JSON_TYPE}
        answer = self._post("/v1/finding-actions", headers=headers, json=encode_action(action))
        try:
            return str(answer.json()["action_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._no_collector("it did not confirm the action") from error

    def annotate(self, annotation: Annotation) -> str:
        """Store a tag, a note or a view. Returns the id of the row."""
        headers = {**self._to_write, "Content-Type": JSON_TYPE}
        answer = self._post("/v1/annotations", headers=headers, json=encode_annotation(annotation))
        try:
            return str(answer.json()["annotation_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._no_collector("it did not confirm the annotation") from error

    def time(self) -> CollectorTime:
        """The collector's time. Waits at most two seconds for an answer.

        Raises:
            ValueError: the answer has no time.
        """
        return CollectorTime.of(self._send("GET", "/v1/clock", headers=self._to_write, timeout=TIME_S).json())

    def healthy(self) -> bool:
        """Whether the collector answers, and its store too."""
        try:
            return self._http.get("/healthz").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _post(self, path: str, **request: Any) -> httpx.Response:
        return self._send("POST", path, **request)

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # also if the answer cannot be decompressed
            raise UnreachableError(
                f"no collector answers at {without_password(self.url)}: {without_errno(error)}",
                hint=_where_to_look(error),
            ) from error
        if answer.is_success:
            return answer
        raise self._refusal(answer, of_rows=path.startswith("/v1/batches/"))

    def _refusal(self, answer: httpx.Response, *, of_rows: bool) -> RankscopeError:
        what, hint = _message_and_hint(answer)
        message = f"collector at {without_password(self.url)}: {what}"
        if answer.status_code in LATER:
            return UnreachableError(message, hint=hint, retry_after_s=_retry_after_s(answer))
        error = ERROR_OF.get(answer.status_code)
        if error is JumpError:
            return JumpError(message, hint=hint, stored=_stored(answer))
        if error is None:
            error = RefusedRowsError if of_rows and answer.status_code in (400, 413) else UsageError
        return error(message, hint=hint)

    def _no_collector(self, why: str) -> UnreachableError:
        """The error for an answer that is not from a collector, perhaps from a proxy before it. A retry may succeed."""
        return UnreachableError(
            f"no collector answers at {without_password(self.url)}: {why}",
            hint="check that this is the address of a rankscope collector",
        )


def _stored(answer: httpx.Response) -> dict[int, int]:
    """For each rank, one past the last number that is stored. Empty if the answer does not contain it."""
    try:
        return {int(rank): int(seq) for rank, seq in answer.json()["stored"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _retry_after_s(answer: httpx.Response) -> float | None:
    """The seconds in Retry-After. None if it is missing, or is a date, as proxies may send."""
    seconds = answer.headers.get("retry-after", "")
    return float(seconds) if seconds.isdecimal() and seconds.isascii() else None


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _where_to_look(error: Exception) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (
            "set RANKSCOPE_CA_FILE to the CA of the collector's certificate, and use the host name in that certificate"
        )
    return "start one with `rankscope collect`, or use the address of another one, such as http://host:8719"


def _system_certificates(url: str) -> ssl.SSLContext | bool:
    """The setting ``verify`` of httpx. Only for https, it reads the system's certificates, which takes 20 ms."""
    return url.lower().startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _host_of(url: str) -> str:
    with suppress(httpx.InvalidURL):
        if host := httpx.URL(checked_collector(url)).host:
            return host
    raise UsageError(f"{without_password(url)!r} is not the address of a collector", hint="use http://HOST:8719")


def _message_and_hint(answer: httpx.Response) -> tuple[str, str]:
    try:
        body = answer.json()
        return str(body["error"]), str(body["hint"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {answer.status_code}", "check that this is the address of a rankscope collector"
