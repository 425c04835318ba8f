"""The route ``/profile``: it returns the file of a stored profile. Its query names run, attempt, profile and rank."""

from collections.abc import Iterator

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from diagnose.profiles import StoredProfile, stored_profiles, trace_parts
from telemetry.errors import NotStoredError, RankscopeError, UnreachableError, UsageError
from telemetry.profile_file import file_name
from telemetry.stores.interface import Reader
from ui.dashboard.pages.profiling import PATH

HEADERS = {"X-Content-Type-Options": "nosniff"}


def serve_profiles(server: FastAPI, reader: Reader) -> None:
    """Add the route to a server."""

    async def profile(request: Request) -> Response:
        return await run_in_threadpool(_answer, request, reader)

    server.add_api_route(f"/{PATH}", profile, methods=["GET"], include_in_schema=False, response_model=None)


def _answer(request: Request, reader: Reader) -> Response:
    try:
        run_id, attempt = request.query_params.get("run", ""), _number(request, "attempt")
        found = _found(reader, run_id, attempt, request.query_params.get("profile", ""), _number(request, "rank"))
        parts = trace_parts(reader, run_id, attempt, found)
        first = next(parts)  # an error that comes later breaks the download off
    except RankscopeError as error:
        status = 404 if isinstance(error, NotStoredError) else 503 if isinstance(error, UnreachableError) else 400
        return PlainTextResponse(f"{error.message}.\n\n{error.hint}\n", status, headers=HEADERS)
    name = f"{found.profile_id[:8]}-{file_name(found.rank)}"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_all(first, parts), media_type="application/gzip", headers=headers)


def _found(reader: Reader, run_id: str, attempt: int, profile_id: str, rank: int) -> StoredProfile:
    for profile in stored_profiles(reader, run_id, attempt):
        if (profile.profile_id, profile.rank) == (profile_id, rank):
            return profile
    raise NotStoredError("There is no such profile", hint="choose one from the overview of the run")


def _all(first: bytes, parts: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from parts


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not (text.isdecimal() and text.isascii() and len(text) <= 9):
        raise UsageError(f"{name} is not a number", hint="use a link of the dashboard")
    return int(text)
