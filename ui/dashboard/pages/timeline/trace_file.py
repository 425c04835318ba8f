"""The route ``/trace``: it returns the spans of a timeline as a trace file. Its query holds the view and ``form``.

The server checks its access like that of every other route. Only one file is written at a time, in a thread; other
requests get an answer to retry later.
"""

import tempfile
import threading
from pathlib import Path
from urllib.parse import quote

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from diagnose.trace.export import Format, export_trace
from telemetry.errors import RankscopeError, UnknownRunError, UnreachableError, UsageError
from telemetry.stores.interface import Reader
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.defaults import chosen_steps
from ui.dashboard.one_clock import clock_note
from ui.dashboard.pages.timeline.export import FORM, PATH, chosen_trace
from ui.dashboard.pages.timeline.selection import selection
from ui.dashboard.view_state import StepRange, ViewState

TYPES = {Format.JSON: "application/gzip", Format.PROTOBUF: "application/octet-stream"}
RETRY_S = "5"


def give_traces(server: FastAPI, reader: Reader, reads: Reads) -> None:
    """Add the route to a server."""
    at_work = threading.Lock()

    async def trace(request: Request) -> Response:
        return await run_in_threadpool(_answer, request, reader, reads, at_work)

    server.add_api_route(f"/{PATH}", trace, methods=["GET"], include_in_schema=False, response_model=None)


def _answer(request: Request, reader: Reader, reads: Reads, at_work: threading.Lock) -> Response:
    form = request.query_params.get(FORM, Format.JSON)
    if form not in [*Format]:
        return _refused(400, f"No form {form[:40]!r}", f"{FORM} is one of: {', '.join(Format)}")
    if not at_work.acquire(blocking=False):
        return _refused(503, "Another trace is being written", "retry in some seconds")
    try:
        return _written(parse_search(request.url.query).state, Format(form), reader, reads)
    except RankscopeError as error:
        return _refused(_status(error), error.message, error.hint)
    finally:
        at_work.release()


def _written(state: ViewState, form: Format, reader: Reader, reads: Reads) -> Response:
    facts = reads.facts(state)
    if not len(facts.steps.step):
        raise UsageError("No step is stored yet", hint="retry when the first step has ended")
    shown = selection(state, reads)
    steps = chosen_steps(state, facts) if state.steps else StepRange(shown.step, shown.step)
    choice = chosen_trace(facts, steps, shown.rows, reads, reader)
    with tempfile.TemporaryDirectory(prefix="rankscope-trace-") as folder:
        path = export_trace(reader, choice, form=form, folder=Path(folder), note_of=clock_note).path
        content = path.read_bytes()
    return Response(
        content,
        media_type=TYPES[form],
        headers={
            "Content-Disposition": f"attachment; filename*=utf-8''{quote(path.name)}",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _status(error: RankscopeError) -> int:
    match error:
        case UnknownRunError():
            return 404
        case UnreachableError():
            return 503
        case _:
            return 400


def _refused(status: int, message: str, hint: str) -> Response:
    """Text, for a browser shows it to its reader."""
    later = {"Retry-After": RETRY_S} if status == 503 else {}
    text = f"{message}.\n\n{hint[:1].upper()}{hint[1:]}\n"
    return PlainTextResponse(text, status, headers={"X-Content-Type-Options": "nosniff", **later})
