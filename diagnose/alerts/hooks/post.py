"""Sends requests to a receiver, each with a total time limit. All failures become a ``HookError``.

    2xx, complete answer                                  accepted
    refused, interrupted, too slow, 5xx, other 4xx        retried, after Retry-After if the answer has it
    400, 410, 413, 422, 3xx                               rejected for good; the start of the answer is reported

After an expired token (401, 403) or a missing path (404), no notice is lost: it is accepted after the repair.

One deadline applies to everything from the DNS look-up to the last byte, so a slow receiver cannot block. Messages
contain only scheme, host and port: paths, tokens and passwords may be secrets.
"""

import asyncio
import json
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from pydantic import SecretStr

from diagnose.alerts.hooks.interface import HookError
from diagnose.alerts.hooks.shape import without
from telemetry.errors import UsageError
from telemetry.printable import one_line

CONNECT_S = 5.0
MAX_PORT = 2**16 - 1
LONGEST_WAIT_S = 3600.0
"""Longest ``Retry-After`` that is used."""
ENOUGH_BYTES = 64 * 2**10
"""Number of bytes that are read of the answer to a notice."""
MOST_FOUND_BYTES = 4 * 2**20
"""Number of bytes that are read of the answer to a query."""
LONG_SEGMENT = 16
"""Parts of a path with at least this length are treated as secrets."""
FOR_GOOD = (400, 410, 413, 422)
"""Statuses of an invalid notice, or of a receiver that was removed for good."""
_HINTS = {
    401: "check that the token, or the user and password, are valid",
    403: "check that this token or user may send here",
    404: "check the url",
    405: "check the url",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: httpx.Headers
    text: str


class Receiver:
    """An address that accepts requests. For one thread at a time.

    Args:
        hook: name of the hook, for messages.
        url: address. Its user and password are sent as HTTP basic authentication.
        path: appended to ``url``, unless ``url`` ends with it.
        token: sent as ``Authorization: Bearer``.
        secrets: further texts that messages must not contain.

    Raises:
        UsageError: ``url`` is invalid, or the token is not ASCII.
    """

    def __init__(
        self,
        hook: str,
        url: SecretStr,
        *,
        timeout_s: float,
        path: str = "",
        token: SecretStr | None = None,
        secrets: Sequence[SecretStr] = (),
    ) -> None:
        address = _parsed(hook, url.get_secret_value())
        if not address.path.endswith(path):
            address = address.copy_with(path=address.path.rstrip("/") + path)
        self._target = address.raw_path
        self._server = address.copy_with(raw_path=b"/", userinfo=b"", fragment=None)
        self._user = (address.username, address.password) if address.userinfo else None
        self._headers = _authorization(hook, token)
        self._timeout_s = timeout_s
        self._name = f"hook {hook}: {str(self._server).rstrip('/')}"
        self._secrets = [*_secrets_of(address), *(each.get_secret_value() for each in (*secrets, token) if each)]
        # Loopback addresses are not reached through a proxy.
        self._through_proxy = address.host not in ("127.0.0.1", "::1", "localhost")
        self._tls = httpx.create_ssl_context() if address.scheme == "https" else False

    def post(
        self, body: object, *, content_type: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send ``body`` as JSON. On return the receiver has answered 2xx.

        Raises:
            HookError: the receiver has not answered 2xx.
        """
        more = {"Content-Type": content_type, **(headers or {})}
        self._send("POST", self._target, json.dumps(body).encode(), more)

    def get(self, parameters: Sequence[tuple[str, str]]) -> Any:
        """The JSON that the receiver answers to a query.

        Raises:
            HookError: the receiver does not answer with JSON.
        """
        target = self._target + b"?" + urlencode(parameters).encode()
        answer = self._send("GET", target, b"", {}, most_bytes=MOST_FOUND_BYTES)
        try:
            return json.loads(answer.text)
        except (ValueError, RecursionError):
            raise self._error("the answer is not JSON, or too long", again=False) from None

    def delete(self, more_path: str) -> None:
        """Delete the resource with the path ``more_path`` below the address.

        Raises:
            HookError: the receiver has not confirmed it.
        """
        self._send("DELETE", self._target + b"/" + quote(more_path, safe="").encode(), b"", {})

    def _send(
        self, method: str, target: bytes, content: bytes, headers: Mapping[str, str], *, most_bytes: int = ENOUGH_BYTES
    ) -> _Answer:
        try:
            answer = _run(self._request(method, target, content, {**self._headers, **headers}, most_bytes))
        except TimeoutError:
            raise self._error(f"no complete answer within {self._timeout_s:g} s", again=True) from None
        except (httpx.HTTPError, OSError) as error:
            raise self._error(str(error) or type(error).__name__, again=True) from None
        self._check(answer)
        return answer

    async def _request(
        self, method: str, target: bytes, content: bytes, headers: Mapping[str, str], most_bytes: int
    ) -> _Answer:
        # The path is not part of the URL here, because httpx logs URLs.
        async with (
            asyncio.timeout(self._timeout_s),
            httpx.AsyncClient(
                timeout=httpx.Timeout(self._timeout_s, connect=min(CONNECT_S, self._timeout_s)),
                auth=self._user,
                verify=self._tls,
                trust_env=self._through_proxy,
                headers={"User-Agent": "rankscope", "Accept-Encoding": "identity"},
            ) as http,
            http.stream(
                method, self._server, content=content, headers=headers, extensions={"target": target}
            ) as answer,
        ):
            return _Answer(answer.status_code, answer.headers, await _start_of(answer, most_bytes))

    def _check(self, answer: _Answer) -> None:
        status = answer.status
        if 200 <= status < 300:
            return
        message = f"status {status}: {answer.text}" if answer.text else f"status {status}"
        if 300 <= status < 400:
            message = f"status {status}: redirects are not followed; set the final address"
            raise self._error(message, again=False, status=status)
        after_s, hint = _retry_after_s(answer.headers, time.time()), _HINTS.get(status, "")
        raise self._error(message, again=status not in FOR_GOOD, after_s=after_s, hint=hint, status=status)

    def _error(self, message: str, *, again: bool, after_s: float = 0.0, hint: str = "", status: int = 0) -> HookError:
        text = f"{self._name}: {one_line(without(self._secrets, message), 300)}"
        return HookError(text, again=again, after_s=after_s, hint=hint, status=status)


def _run(work: Coroutine[object, object, _Answer]) -> _Answer:
    """Run the request and return its answer. If this thread already runs an event loop, use another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(work)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="rankscope-post") as pool:
        return pool.submit(_run_here, work).result()


def _run_here(work: Coroutine[object, object, _Answer]) -> _Answer:
    """Like ``asyncio.run``, but it does not wait for a DNS look-up that was cancelled."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _start_of(answer: httpx.Response, most_bytes: int) -> str:
    start = bytearray()
    async for piece in answer.aiter_raw():
        start += piece
        if len(start) >= most_bytes:
            break
    return start[:most_bytes].decode("utf-8", "replace")


def _retry_after_s(headers: httpx.Headers, now_s: float) -> float:
    """The wait in ``Retry-After``, which is a number of seconds or a date. 0 without that header."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), LONGEST_WAIT_S)
    try:
        return min(max(0.0, parsedate_to_datetime(value).timestamp() - now_s), LONGEST_WAIT_S)
    except (ValueError, OverflowError):
        return 0.0


def _parsed(hook: str, url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"hook {hook}: its url is not an address", hint="begin it with http:// or https://")
    if not _is_reachable(parsed):
        raise UsageError(
            f"hook {hook}: its url has an invalid host or port",
            hint="use a name or an address ([::1] in brackets), and a port from 1 to 65535",
        )
    return parsed


def _is_reachable(url: httpx.URL) -> bool:
    """Whether host and port are valid for a connection. httpx also accepts invalid ones."""
    host = url.raw_host.decode("ascii")
    if url.port is not None and not 1 <= url.port <= MAX_PORT:
        return False
    if ":" in host:
        return True  # httpx has parsed it as an IPv6 address
    try:
        host.encode("idna")  # fails if a label is empty or too long
    except UnicodeError:
        return False
    return "%" not in host  # httpx quotes invalid characters with %


def _authorization(hook: str, token: SecretStr | None) -> dict[str, str]:
    if token is None:
        return {}
    if not token.get_secret_value().isascii():
        raise UsageError(f"hook {hook}: its token has non-ASCII characters", hint="check the token")
    return {"Authorization": f"Bearer {token.get_secret_value()}"}


def _secrets_of(url: httpx.URL) -> list[str]:
    path = url.raw_path.decode("ascii")
    segments = [part for part in path.replace("?", "/").split("/") if len(part) >= LONG_SEGMENT]
    return [str(url), url.password, *segments, *([path] if len(path) > LONG_SEGMENT else [])]
