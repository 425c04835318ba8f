"""One POST to a receiver: bounded as a whole, and every way it can fail told as a ``HookError``.

    2xx, read to its end                             it has them
    refused, cut off, not in time, 5xx, other 4xx    again, after Retry-After where it says so
    400, 410, 413, 422, 3xx                          never; the start of its words is told

A token that has run out (401, 403) or a route that is gone (404) loses nothing: somebody mends it, and it is taken.

The whole of it, from the name's look-up to the last byte, shares one deadline: a receiver that drips bytes holds
nobody. What is logged or told names scheme, host and port alone: paths, tokens and passwords may be secrets.
"""

import asyncio
import json
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx
from pydantic import SecretStr

from diagnose.alerts.hooks.interface import HookError
from diagnose.alerts.hooks.shape import without
from telemetry.errors import UsageError
from telemetry.printable import one_line

CONNECT_S = 5.0
MAX_PORT = 2**16 - 1
LONGEST_WAIT_S = 3600.0
"""Nobody is obeyed who asks to be left alone for longer."""
ENOUGH_BYTES = 64 * 2**10
"""Of an answer; what comes after says nothing new."""
LONG_SEGMENT = 16
"""Parts of a path from this length on may be secrets by themselves."""
FOR_GOOD = (400, 410, 413, 422)
"""What is wrong with the notice itself, or says that nobody will ever be there again."""
_MAY_MEND = {
    401: "check that the token, or the user and password, are valid",
    403: "check that this token or user may send here",
    404: "check the url",
    405: "check the url",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: httpx.Headers
    words: str


class Receiver:
    """An address that takes POSTs. For one thread at a time.

    Args:
        hook: name of the hook, for messages.
        url: where to; a user and password in it are presented as such.
        path: appended to it, unless it is there already.
        token: presented as ``Authorization: Bearer``.
        secrets: further words that no message may repeat.

    Raises:
        UsageError: ``url`` is none, or the token is not ASCII.
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
        whole = _parsed(hook, url.get_secret_value())
        if not whole.path.endswith(path):
            whole = whole.copy_with(path=whole.path.rstrip("/") + path)
        self._target = whole.raw_path
        self._place = whole.copy_with(raw_path=b"/", userinfo=b"", fragment=None)
        self._user = (whole.username, whole.password) if whole.userinfo else None
        self._headers = _authorization(hook, token)
        self._timeout_s = timeout_s
        self._who = f"hook {hook}: {str(self._place).rstrip('/')}"
        self._secrets = [*_secrets_of(whole), *(each.get_secret_value() for each in (*secrets, token) if each)]
        # No proxy stands between this machine and itself.
        self._through_proxy = whole.host not in ("127.0.0.1", "::1", "localhost")
        self._tls = httpx.create_ssl_context() if whole.scheme == "https" else False

    def post(
        self, body: object, *, content_type: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        """Hand over ``body`` as JSON. On return the receiver has answered 2xx.

        Raises:
            HookError: it has not.
        """
        sent = {"Content-Type": content_type, **self._headers, **(headers or {})}
        try:
            answer = _run(self._ask(json.dumps(body).encode(), sent))
        except TimeoutError:
            raise self._error(f"no complete answer within {self._timeout_s:g} s", again=True) from None
        except (httpx.HTTPError, OSError) as error:
            raise self._error(str(error) or type(error).__name__, again=True) from None
        self._judge(answer)

    async def _ask(self, content: bytes, headers: Mapping[str, str]) -> _Answer:
        # The path travels beside the URL, because httpx logs URLs.
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
                "POST", self._place, content=content, headers=headers, extensions={"target": self._target}
            ) as answer,
        ):
            return _Answer(answer.status_code, answer.headers, await _start_of(answer))

    def _judge(self, answer: _Answer) -> None:
        status = answer.status
        if 200 <= status < 300:
            return
        told = f"status {status}: {answer.words}" if answer.words else f"status {status}"
        if 300 <= status < 400:
            told = f"status {status}: redirects are not followed; set the final address"
            raise self._error(told, again=False)
        after_s = _asked_wait_s(answer.headers, time.time())
        raise self._error(told, again=status not in FOR_GOOD, after_s=after_s, hint=_MAY_MEND.get(status, ""))

    def _error(self, told: str, *, again: bool, after_s: float = 0.0, hint: str = "") -> HookError:
        words = f"{self._who}: {one_line(without(self._secrets, told), 300)}"
        return HookError(words, again=again, after_s=after_s, hint=hint)


def _run(work: Coroutine[object, object, _Answer]) -> _Answer:
    """The answer. A caller inside a loop of its own lends no thread: one is made."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(work)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="rankscope-post") as pool:
        return pool.submit(_run_here, work).result()


def _run_here(work: Coroutine[object, object, _Answer]) -> _Answer:
    """Like ``asyncio.run``, which would wait for a look-up of a name that nobody waits for any more."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _start_of(answer: httpx.Response) -> str:
    start = b""
    async for piece in answer.aiter_raw():
        start += piece
        if len(start) >= ENOUGH_BYTES:
            break
    return start[:ENOUGH_BYTES].decode("utf-8", "replace")


def _asked_wait_s(headers: httpx.Headers, now_s: float) -> float:
    """What ``Retry-After`` says, in seconds or as a date; 0 where it says nothing."""
    asked = headers.get("Retry-After", "").strip()
    if asked.isascii() and asked.isdigit():
        return min(float(asked), LONGEST_WAIT_S)
    try:
        return min(max(0.0, parsedate_to_datetime(asked).timestamp() - now_s), LONGEST_WAIT_S)
    except (ValueError, OverflowError):
        return 0.0


def _parsed(hook: str, url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"hook {hook}: its url is not an address", hint="begin it with http:// or https://")
    if not _can_be_asked(parsed):
        raise UsageError(
            f"hook {hook}: its url has an invalid host or port",
            hint="use a name or an address ([::1] in brackets), and a port from 1 to 65535",
        )
    return parsed


def _can_be_asked(url: httpx.URL) -> bool:
    """Whether a look-up of its host could be asked at all: httpx takes more."""
    host = url.raw_host.decode("ascii")
    if url.port is not None and not 1 <= url.port <= MAX_PORT:
        return False
    if ":" in host:
        return True  # httpx has read it as an IPv6 address
    try:
        host.encode("idna")  # no label of it is empty, or too long
    except UnicodeError:
        return False
    return "%" not in host  # what stands in no name is quoted


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
