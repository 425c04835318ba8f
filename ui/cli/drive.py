"""The work of `rankscope drive`: the job on this machine, its collector, and the requests of operators."""

import shlex
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from telemetry.errors import UnreachableError, UsageError
from telemetry.plain_errors import without_errno
from telemetry.printable import printable
from telemetry.process.quick_imports import quick_imports
from telemetry.run_names import checked_run_name
from telemetry.settings import DEFAULT_PORT, host_of
from trainer.config import CheckpointConfig, TrainConfig
from trainer.drive.folder import DRIVER, JOB, STATE, DriverPlace, JobFile, JobFolder
from trainer.drive.job import Job, Node
from trainer.drive.records import Action, Decision, Request
from trainer.drive.settings import DriveConfig
from trainer.drive.status import Status
from trainer.faults.inject import parse_fault
from trainer.json_records import decode, encode
from trainer.output import CHECKPOINTS, make_out
from trainer.recipes import recipe_named
from trainer.run_options import RunOptions
from ui.cli.commands.drive import (
    DEFAULT_OUT,
    DrainOptions,
    DriveOptions,
    NodeOptions,
    PauseOptions,
    ReplaceOptions,
    ResumeOptions,
    StatusOptions,
)
from ui.cli.output import out
from ui.cli.own_collector import own_collector
from ui.cli.ports import claimed_port, reclaimed_port
from ui.cli.train import configured

OWN = "http://127.0.0.1:"
"""The first part of the address of a collector that starts with the job. The port follows."""
ANSWER_S = 10.0
NEWEST = 12
"""Number of newest decisions that are printed."""


def drive(options: DriveOptions) -> int:
    place = make_out(options.out, usual=DEFAULT_OUT)
    folder = JobFolder(place)
    folder.make()
    earlier = folder.read(JOB, JobFile)
    job = _job(options, earlier, place)
    with quick_imports():
        from trainer.drive.local import drive_here  # noqa: PLC0415 - after the checks: torch takes seconds to import

    if options.collector is not None or not options.own_collector:
        return drive_here(job)
    with _own_port(earlier, place) as port:  # executors hold it too
        job = replace(job, options=replace(job.options, collector=f"{OWN}{port}"))
        return drive_here(job, partial(own_collector, place, job))


def _own_port(earlier: JobFile | None, place: Path) -> AbstractContextManager[int]:
    """The port of the collector that starts with the job: the port of an earlier command in the same folder, or a new
    one."""
    own = (earlier.options.collector if earlier else None) or ""
    return (
        reclaimed_port(int(own.removeprefix(OWN)), place) if own.startswith(OWN) else claimed_port(DEFAULT_PORT, place)
    )


def _job(options: DriveOptions, earlier: JobFile | None, place: Path) -> JobFile:
    """The job that the options describe. The name of the run stays that of an earlier command in the same folder."""
    parallel = {"dp": options.dp, "pp": options.pp, "tp": options.tp, "num_microbatches": options.microbatches}
    data = {"path": options.data, "shared_loader": options.shared_loader}
    train = replace(
        configured(recipe_named(options.recipe), data, options.steps, parallel),
        seed=options.seed,
        collective_timeout_s=options.collective_timeout,
        checkpoint=CheckpointConfig(every=options.checkpoint_every or 0, keep=options.keep or CheckpointConfig().keep),
    )
    parse_fault(options.fault, train.parallel.topology, num_steps=train.num_steps)
    _check_nodes(train, options.nodes)
    if options.listen and options.collector is None and options.own_collector:
        raise UsageError(
            "--listen needs --collector: other hosts cannot reach a collector that is started here",
            hint="use --collector http://HOST:PORT, or --no-own-collector",
        )
    usual = DriveConfig(num_nodes=options.nodes)
    acted = tuple(dict.fromkeys((*usual.act_on, *options.act_on)))
    settings = replace(
        usual,
        num_spares=options.spares,
        listen=options.listen,
        max_failures=options.max_failures,
        stall_s=options.stall,
        checks=options.checks,
        replicas=options.replicas,
        act_on=acted,
        advise_on=tuple(kind for kind in usual.advise_on if kind not in acted),
    )
    run_id = checked_run_name(options.run) if options.run else None
    if earlier is not None:
        _check_same(earlier, train, settings, run_id, place)
        run_id = earlier.options.run_id
    return JobFile(
        train=train,
        drive=settings,
        options=RunOptions(
            out=place,
            run_id=run_id or f"{options.recipe}-{time.strftime('%Y%m%d-%H%M%S')}",
            fault=options.fault,
            collector=options.collector,
            checkpoints=place / CHECKPOINTS if options.checkpoints is None else options.checkpoints.resolve(),
        ),
    )


def _check_nodes(train: TrainConfig, nodes: int) -> None:
    ranks = train.parallel.topology.world_size
    if ranks % nodes:
        fitting = [number for number in range(1, ranks + 1) if ranks % number == 0]
        raise UsageError(
            f"{ranks} ranks cannot be divided among {nodes} nodes",
            hint=f"use --nodes {', '.join(map(str, fitting))}, or another --dp, --pp or --tp",
        )


def _check_same(earlier: JobFile, train: TrainConfig, settings: DriveConfig, run_id: str | None, place: Path) -> None:
    """Raises:
    UsageError: the folder belongs to another job.
    """
    pairs = {
        "--recipe": (earlier.train.model, train.model),
        "--dp, --pp, --tp, --microbatches": (earlier.train.parallel, train.parallel),
        "--data": (earlier.train.data, train.data),
        "--seed": (earlier.train.seed, train.seed),
        "--nodes": (earlier.drive.num_nodes, settings.num_nodes),
        "--run": (earlier.options.run_id, run_id or earlier.options.run_id),
    }
    others = [name for name, (before, now) in pairs.items() if before != now]
    if others:
        raise UsageError(
            f"{place} belongs to run {earlier.options.run_id}, which has other values of {', '.join(others)}",
            hint="to continue that job, repeat its options. For a new job, use another --out",
        )


def node(options: NodeOptions) -> int:
    with quick_imports():
        from trainer.drive.executor import run_node  # noqa: PLC0415 - torch takes seconds to import

    name = checked_run_name(options.name or host_of(), of="node")
    place = make_out(options.out, usual=DEFAULT_OUT) if options.out.is_dir() else options.out
    return run_node(place, name, address=options.address)


def status(options: StatusOptions) -> int:
    try:
        found = decode(Status, _ask(options.out, "GET", "status"))
    except UnreachableError:
        folder = JobFolder(options.out.resolve())
        job = folder.read(STATE, Job)
        if job is None or not job.phase.is_over:
            raise
        found = Status(job=job, decisions=folder.decisions())
    if options.json:
        out.print_json(encode(found).decode())
        return 0
    job = found.job
    attempt = "no attempt yet" if job.attempt < 0 else f"attempt {job.attempt}"
    out.print(f"run {job.run_id}  {attempt}  {job.phase}: {printable(job.reason)}", markup=False)
    for node in sorted(job.nodes.values(), key=lambda node: node.name):
        out.print(_line(node), markup=False, highlight=False)
    for decision in found.decisions[-NEWEST:]:
        out.print(_decision_line(decision), markup=False, highlight=False)
    return 0


def _decision_line(decision: Decision) -> str:
    """A decision as a line of text."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(decision.at_ns / 1e9))
    about = f"{decision.name} {decision.node}".rstrip()
    return f"{at} attempt {max(decision.attempt, 0)} {about}: {printable(decision.reason)}"


def _line(node: Node) -> str:
    """The state of a node as a line of text."""
    report = node.report
    ranks = ", ".join(f"rank {rank} pid {pid}" for rank, pid in report.pids.items()) if report else ""
    parts = [f"step {report.step}: {ranks}" if report and ranks else "", printable(node.reason)]
    return f"  {node.name:12} {node.state:8} {'; '.join(filter(None, parts))}".rstrip()


def drain(options: DrainOptions) -> int:
    return _request(options.out, Request(action=Action.DRAIN, node=options.node))


def replace_node(options: ReplaceOptions) -> int:
    return _request(options.out, Request(action=Action.REPLACE, node=options.node))


def pause(options: PauseOptions) -> int:
    return _request(options.out, Request(action=Action.PAUSE))


def resume(options: ResumeOptions) -> int:
    return _request(options.out, Request(action=Action.RESUME, node=options.node))


def _request(place: Path, request: Request) -> int:
    _ask(place, "POST", "requests", content=encode(request))
    asked = f"{request.action} {request.node}".rstrip()
    out.print(
        f"{asked}: the driver has accepted the request. To see its effect, run: rankscope drive status --out "
        f"{shlex.quote(str(place))}",
        markup=False,
    )
    return 0


def _ask(place: Path, method: str, path: str, **request: Any) -> bytes:
    """Send a request to the driver of the job in ``place``. Returns the answer.

    Raises:
        UsageError: there is no job in ``place``, or the driver refuses the request.
        UnreachableError: no driver answers.
    """
    driver = JobFolder(place.resolve()).read(DRIVER, DriverPlace) if place.is_dir() else None
    if driver is None:
        raise UsageError(f"no job in {place}", hint="give the folder of the job: --out DIR")
    try:
        answer = httpx.request(
            method,
            f"{driver.url}/v1/{path}",
            headers={"Authorization": f"Bearer {driver.token}"},
            timeout=ANSWER_S,
            trust_env=False,
            **request,
        )
    except httpx.HTTPError as error:
        raise UnreachableError(
            f"no driver answers at {driver.url}: {without_errno(error)}",
            hint="the job is over, or its driver was killed: to continue it, repeat the command that started it",
        ) from error
    if answer.is_success:
        return answer.content
    with suppress(ValueError, KeyError, TypeError):
        body = answer.json()
        raise UsageError(body["error"], hint=body["hint"])
    raise UnreachableError(f"the driver answered with status {answer.status_code}", hint="see the log of the job")
