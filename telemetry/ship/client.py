"""The other side of the collector's HTTP: questions and batches, from any process."""

import os
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import pyarrow as pa

from telemetry.errors import RankscopeError, TakenNameError, UnreachableError, UsageError
from telemetry.ship.wire import ARROW_TYPE, Ack, decode, encode, encode_query
from telemetry.stores.address import without_password
from telemetry.stores.question import Query

CONNECT_S = 5.0
ANSWER_S = 120.0
TAKEN = 409
LATER = (429, 502, 503, 504)
"""Statuses that mean: the same again, a little later."""


class CollectorClient:
    """Answers typed queries through a collector (a ``Reader``), and posts batches to it. For any thread.

    Args:
        url: ``http://host:port``.
        token: ``RANKSCOPE_TOKEN`` where None.

    Raises:
        UnreachableError: from every method but :meth:`healthy`: nobody answers, or asks to come back later.
        UsageError: what was sent is refused for good: a wrong token, an unknown query, rows out of order.
        TakenNameError: it is refused for the name of its run; other runs are not.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        token = token if token is not None else os.environ.get("RANKSCOPE_TOKEN", "")
        host = _host_of(url)
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            # No proxy stands between this machine and itself.
            trust_env=host not in ("127.0.0.1", "::1", "localhost"),
        )

    def read(self, query: Query) -> pa.Table:
        """The rows of ``query``, with the columns its docstring names."""
        return decode(self._post("/v1/query", json=encode_query(query)).content)

    def post(self, table: str, rows: pa.Table) -> Ack:
        """Store ``rows``, whose schema metadata says whose they are. They are stored when this returns."""
        answer = self._post(f"/v1/batches/{table}", content=encode(rows), headers={"Content-Type": ARROW_TYPE}).json()
        return Ack(rows=answer["rows"], duplicates=answer["duplicates"])

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
        try:
            answer = self._http.post(path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # an answer that cannot be unpacked is none, either
            raise UnreachableError(
                f"no collector answers at {without_password(self.url)}: {error}",
                hint="start one with `rankscope collect`, or say where it is: --store http://host:8719",
            ) from error
        if answer.is_success:
            return answer
        what, hint = _words(answer)
        raise _kind(answer.status_code)(f"collector at {without_password(self.url)}: {what}", hint=hint)


def _kind(status: int) -> type[RankscopeError]:
    if status == TAKEN:
        return TakenNameError
    return UnreachableError if status in LATER else UsageError


def _host_of(url: str) -> str:
    with suppress(ValueError, httpx.InvalidURL):
        host = urlsplit(url).hostname
        if host and httpx.URL(url).host:
            return host
    raise UsageError(f"{without_password(url)!r} is no address of a collector", hint="use http://127.0.0.1:8719")


def _words(answer: httpx.Response) -> tuple[str, str]:
    try:
        told = answer.json()
        return str(told["error"]), str(told["hint"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {answer.status_code}", "is this the address of a rankscope collector?"
