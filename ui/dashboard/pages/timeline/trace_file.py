"""The route ``/trace``: it returns the spans of a timeline as a trace file. Its query holds the view, ``form``, and
``profiles=1`` for a file with the stored profiles of these ranks and steps.

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

from diagnose.findings import StepWindow
from diagnose.profiles import StoredProfile
from diagnose.ranges import fold_ranks
from diagnose.trace.choice import Choice, choose
from diagnose.trace.export import Format, export_trace
from diagnose.trace.profiles import ProfiledRun, RankProfile, overlaps
from telemetry.errors import RankscopeError, UnknownRunError, UnreachableError, UsageError
from telemetry.profiles import Phase
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Lanes
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.data.columns import ints
from ui.dashboard.data.profiles import profiles_of
from ui.dashboard.defaults import Rows, chosen_steps
from ui.dashboard.pages.timeline.selection import StepSelection, clock_note, selection
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import StepRange, ViewState
from ui.dashboard.wording import count

PATH, FORM, PROFILES = "trace", "form", "profiles"
"""The route, and the fields of its query that are not part of the view."""
MAX_SPANS = 200_000
"""Largest number of spans in one file. The command writes larger files."""


MAX_PROFILES = 8
MAX_PROFILE_BYTES = 32 * 2**20
"""Largest size of the profiles in one file, unpacked. The server needs six times as much memory to read them."""


def trace_address(state: ViewState, form: Format, *, with_profiles: bool = False) -> str:
    """The address of the trace file of a view, relative to the page."""
    return f"{PATH}{state.search()}&{FORM}={form}" + f"&{PROFILES}=1" * with_profiles


def shown_profiles(facts: RunFacts, steps: StepRange, rows: Rows, reads: Reads) -> list[StoredProfile]:
    """The stored profiles of these steps and ranks, newest first, at most MAX_PROFILES and MAX_PROFILE_BYTES."""
    window = StepWindow(first_step=steps.first, last_step=steps.last)
    found: list[StoredProfile] = []
    size_bytes = 0
    for profile in profiles_of(facts.summary, reads):
        if profile.phase is Phase.STORED and profile.rank in rows.ranks and overlaps(profile, window):
            own_bytes = profile.outcome.size_bytes if profile.outcome else 0
            if size_bytes + own_bytes <= MAX_PROFILE_BYTES:
                found.append(profile)
                size_bytes += own_bytes
    return found[:MAX_PROFILES]


def num_spans(facts: RunFacts, steps: StepRange, rows: Rows, reads: Reads) -> int:
    """The number of spans in a trace file of these steps and ranks.

    Raises:
        UsageError: there are more than MAX_SPANS. The hint is a command that writes them.
    """
    run = facts.summary
    query = Lanes(**run.key, first_step=steps.first, last_step=steps.last, ranks=rows.ranks)
    found = int(ints(reads.ask(run, query), "spans").sum())
    if found > MAX_SPANS:
        raise UsageError(
            f"{count(found, 'span')}: the limit of this page is {MAX_SPANS:,}",
            hint=f"this command writes all of them: {command(facts, steps, rows)}",
        )
    return found


def chosen_trace(facts: RunFacts, steps: StepRange, rows: Rows, reads: Reads, reader: Reader) -> Choice:
    """The spans to write.

    Raises:
        UsageError: nothing is stored there, or there are more than MAX_SPANS spans.
    """
    num_spans(facts, steps, rows, reads)
    window = StepWindow(first_step=steps.first, last_step=steps.last)
    return choose(reader, facts.summary.run_id, facts.summary.attempt, window=window, ranks=fold_ranks(rows.ranks))


def command(facts: RunFacts, steps: StepRange, rows: Rows) -> str:
    """The command that writes the same file."""
    run = facts.summary
    ranks = fold_ranks(rows.ranks).replace(" ", "")
    of = "" if len(rows.ranks) == facts.topology.world_size else f" --ranks {ranks}"
    return (
        f"rankscope export perfetto {run.run_id} --attempt {run.attempt} "
        f"--first-step {steps.first} --last-step {steps.last}{of}"
    )


TYPES = {Format.JSON: "application/gzip", Format.PROTOBUF: "application/octet-stream"}
RETRY_S = "5"


def serve_traces(server: FastAPI, reader: Reader, reads: Reads) -> None:
    """Add the route to a server."""
    writing = threading.Lock()

    async def trace(request: Request) -> Response:
        return await run_in_threadpool(_answer, request, reader, reads, writing)

    server.add_api_route(f"/{PATH}", trace, methods=["GET"], include_in_schema=False, response_model=None)


def _answer(request: Request, reader: Reader, reads: Reads, writing: threading.Lock) -> Response:
    form = request.query_params.get(FORM, Format.JSON)
    if form not in [*Format]:
        return _refused(400, f"No form {form[:40]!r}", f"{FORM} is one of: {', '.join(Format)}")
    if not writing.acquire(blocking=False):
        return _refused(503, "Another trace is being written", "retry in some seconds")
    try:
        with_profiles = request.query_params.get(PROFILES) == "1"
        return _written(parse_search(request.url.query).state, Format(form), reader, reads, with_profiles)
    except RankscopeError as error:
        status = 404 if isinstance(error, UnknownRunError) else 503 if isinstance(error, UnreachableError) else 400
        return _refused(status, error.message, error.hint)
    finally:
        writing.release()


def _written(state: ViewState, form: Format, reader: Reader, reads: Reads, with_profiles: bool) -> Response:
    facts = reads.facts(state)
    if not len(facts.steps.step):
        raise UsageError("No step is stored yet", hint="retry when the first step has ended")
    shown = selection(state, reads)
    steps = _asked_steps(state, shown)
    choice = chosen_trace(facts, steps, shown.rows, reads, reader)
    profiles: list[RankProfile] = []
    if with_profiles:
        run = ProfiledRun(
            reader=reader, run_id=choice.run_id, attempt=choice.attempt, world_size=choice.topology.world_size
        )
        stored = shown_profiles(shown.facts, steps, shown.rows, reads)
        profiles = run.from_store(stored, MAX_SPANS, MAX_PROFILE_BYTES)
    with tempfile.TemporaryDirectory(prefix="rankscope-trace-") as folder:
        path = export_trace(
            reader,
            choice,
            form=form,
            folder=Path(folder),
            note_of=clock_note,
            profiles=profiles,
            max_spans=MAX_SPANS,
        ).path
        content = path.read_bytes()
    return Response(
        content,
        media_type=TYPES[form],
        headers={
            "Content-Disposition": f"attachment; filename*=utf-8''{quote(path.name)}",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _asked_steps(state: ViewState, shown: StepSelection) -> StepRange:
    """The steps of the address, up to the unfinished one. The chosen step if the address has no steps."""
    if state.steps is None:
        return StepRange(shown.step, shown.step)
    if state.steps.first == shown.unfinished:
        return StepRange(state.steps.first, state.steps.first)
    stored = chosen_steps(state, shown.facts)
    return stored._replace(last=max(stored.last, min(state.steps.last, shown.unfinished or 0)))


def _refused(status: int, message: str, hint: str) -> Response:
    """An error as plain text, which a browser shows to its user."""
    later = {"Retry-After": RETRY_S} if status == 503 else {}
    text = f"{message}.\n\n{hint[:1].upper()}{hint[1:]}\n"
    return PlainTextResponse(text, status, headers={"X-Content-Type-Options": "nosniff", **later})
