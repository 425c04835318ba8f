"""The driver: one process that answers reports with orders.

executors, watcher, operators --HTTP--> policy --> state.json, decisions.jsonl, marks in the store

    POST /v1/reports     a Report; the answer is an Order
    POST /v1/findings    alerts as a webhook sends them (docs/guides/alert-hooks.md); the answer lists those refused
    POST /v1/requests    a Request of an operator
    GET  /v1/status      state and decisions

The state is on disk before an order based on it is sent. If a driver is killed, another one with the same folder
replaces it. The ranks train on meanwhile.
"""

import asyncio
import os
import secrets
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response

from telemetry.collector.connections import BoundedListener
from telemetry.collector.gates import refuse
from telemetry.collector.guard import guard
from telemetry.collector.serving import listen, serve_until, url_of
from telemetry.collector.settings import ServerSettings
from telemetry.errors import RankscopeError, UsageError
from telemetry.printable import log
from telemetry.process.signals import ENDING, SIGNAL_BASE
from trainer.drive.alerts import findings_in
from trainer.drive.folder import DRIVER, JOB, STATE, DriverPlace, JobFile, JobFolder
from trainer.drive.job import Job, Phase
from trainer.drive.marks import MarkSender
from trainer.drive.policy import Policy
from trainer.drive.records import Action, Decision, Finding, Order, Report, Request
from trainer.drive.replica_order import replica_order
from trainer.drive.status import Status
from trainer.json_records import decode, encode

LOOPBACK = "127.0.0.1"
TICK_S = 0.25
LEAVE_S = 90.0
"""How long the driver waits at the end until all executors have ended, and its decisions are on disk."""
STATUS_OF = {Phase.DONE: 0, Phase.GAVE_UP: 1}


def steady_clock() -> Callable[[], float]:
    """A clock in seconds since the epoch. It starts at the wall clock and advances with the monotonic clock, so that no
    time limit changes if the wall clock is set."""
    offset_s = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset_s


class Driver:
    """The policy with its files. Only the thread of the event loop may use it."""

    def __init__(self, folder: JobFolder, job_file: JobFile, marks: MarkSender) -> None:
        self._folder = folder
        self._marks = marks
        self._clock_s = clock_s = steady_clock()
        assert job_file.options.run_id is not None
        stored = folder.read(STATE, Job)
        num_steps, started_ns = job_file.train.num_steps, job_file.started_ns
        new = Job(run_id=job_file.options.run_id, num_steps=num_steps, started_ns=started_ns, since_s=clock_s())
        self._policy = Policy(job_file.drive, stored or new)
        self._stored: object = None
        self._unwritten: list[Decision] = []
        self._is_asked_to_end = False
        self.ended_by = 0
        """The signal that ended the job; 0 if none did."""
        self._record(self._policy.take_over(clock_s(), num_steps, started_ns=started_ns) if stored else [])

    @property
    def job(self) -> Job:
        return self._policy.job

    def report(self, report: Report) -> Order:
        """The order for the node that reports."""
        self._record(self._policy.report(report, self._clock_s()))
        order = self._policy.order(report.node)
        return replace(order, replicas=replica_order(self.job, report.node)) if self._policy.config.replicas else order

    def find(self, finding: Finding) -> None:
        """Handle a finding that arrives."""
        self._record(self._policy.find(finding, self._clock_s()))

    def ask(self, request: Request) -> None:
        """Carry out the request of an operator.

        Raises:
            UsageError: there is no such node, or the action does not fit the state.
        """
        self._record(self._policy.ask(request, self._clock_s()))

    def tick(self) -> None:
        """Do what is due by now. Raises OSError if the folder cannot be written. The next call tries again."""
        if self.ended_by and not self._is_asked_to_end and not self.job.phase.is_over:
            self._is_asked_to_end = True
            self.ask(Request(action=Action.END))
        self._record(self._policy.tick(self._clock_s()))

    def end(self, number: int) -> None:
        """Note that signal ``number`` asks the job to end. A signal handler calls this and can interrupt every other
        method, so the next tick acts."""
        self.ended_by = self.ended_by or number

    @property
    def has_ended(self) -> bool:
        """Whether the job is over and recorded, and every executor has ended or does not report."""
        nodes = self.job.nodes.values()
        waiting = [node for node in nodes if node.report is not None and not node.report.leaving]
        now_s = self._clock_s()
        recent = [node for node in waiting if now_s - node.heard_s < LEAVE_S]
        waits = (recent or self._unwritten) and now_s - self.job.since_s <= LEAVE_S
        return self.job.phase.is_over and not waits

    @property
    def exit_status(self) -> int:
        """The exit status of the driver's process."""
        return STATUS_OF.get(self.job.phase, SIGNAL_BASE + (self.ended_by or signal.SIGTERM))

    def status(self) -> Status:
        """The state and all decisions, for operators."""
        return Status(job=self.job, decisions=self._folder.decisions())

    def _record(self, decisions: list[Decision]) -> None:
        """Write decisions, and the state if more than reports has changed."""
        for decision in decisions:
            log(f"{decision.name}{f' {decision.node}' if decision.node else ''}: {decision.reason}")
        self._unwritten += decisions
        if self._unwritten:
            self._folder.append(self._unwritten)
            self._marks.send(self._unwritten)
            self._unwritten, self._stored = [], None
        if self._stored != self.job.outline:
            self._folder.write(STATE, self.job)
            self._stored = self.job.outline


def make_app(driver: Driver, settings: ServerSettings, stop: Callable[[], None]) -> FastAPI:
    """The server of ``driver``. Calls ``stop`` when the driver has ended."""

    async def tick() -> None:
        problem = ""
        while True:
            await asyncio.sleep(TICK_S)
            before, problem = problem, _problem_of_tick(driver)
            if problem not in ("", before):
                log(f"the driver cannot write its state: {problem}")
            if driver.has_ended:
                stop()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(tick())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    app = FastAPI(title="rankscope driver", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(RankscopeError)
    async def wrong(_: HttpRequest, error: RankscopeError) -> JSONResponse:
        return refuse(400, error.message, error.hint)

    @app.exception_handler(OSError)
    async def unwritten(_: HttpRequest, error: OSError) -> JSONResponse:
        return refuse(503, f"the driver cannot write its state: {error}", "check the storage of the job")

    @app.post("/v1/reports")
    async def report(request: HttpRequest) -> Response:
        return _json(driver.report(decode(Report, await request.body())))

    @app.post("/v1/findings")
    async def findings(request: HttpRequest) -> Response:
        found, refused = findings_in(await request.body())
        for finding in found:
            driver.find(finding)
        if not refused:
            return Response(status_code=204)
        log(f"{len(refused)} of {len(found) + len(refused)} alerts are refused: {refused[0].message}")
        return JSONResponse({"refused": [{"error": error.message, "hint": error.hint} for error in refused]})

    @app.post("/v1/requests")
    async def ask(request: HttpRequest) -> Response:
        driver.ask(decode(Request, await request.body()))
        return Response(status_code=204)

    @app.get("/v1/status")
    async def status() -> Response:
        return _json(driver.status())

    guard(app, settings)
    return app


def _problem_of_tick(driver: Driver) -> str:
    """Why a tick could not be recorded; empty if it was."""
    try:
        driver.tick()
    except OSError as error:
        return str(error)
    return ""


def _json(record: object) -> Response:
    return Response(encode(record), media_type="application/json")


def open_driver_place(folder: JobFolder, host: str) -> tuple[BoundedListener, DriverPlace]:
    """A listening socket for the driver, and its address and token in the folder.

    The address and token of an earlier driver are used again. If another program listens there now, it may have
    received the token, so address and token are new.
    """
    earlier = folder.read(DRIVER, DriverPlace)
    if earlier is not None and urlsplit(earlier.url).hostname == host:
        with suppress(UsageError):
            return listen(host, urlsplit(earlier.url).port or 0), earlier
    listener = listen(host, 0)
    place = DriverPlace(url=url_of(listener), token=secrets.token_hex(32))
    folder.write(DRIVER, place)
    return listener, place


def run_driver(out: Path, listener: BoundedListener) -> int:
    """Run the driver of the job in ``out`` until the job is over. Returns the exit status of the job."""
    folder = JobFolder(out)
    job_file, place = folder.read(JOB, JobFile), folder.read(DRIVER, DriverPlace)
    assert job_file is not None
    assert place is not None
    with listener, MarkSender(job_file.options) as marks:
        folder.write(DRIVER, replace(place, pid=os.getpid()))
        driver = Driver(folder, job_file, marks)
        settings, stop = (
            ServerSettings.of_job(host=job_file.drive.listen or LOOPBACK, token=place.token),
            threading.Event(),
        )
        for number in ENDING:
            signal.signal(number, lambda number, _: driver.end(number))
        serve_until(stop, make_app(driver, settings, stop.set), listener, settings)
    return driver.exit_status
