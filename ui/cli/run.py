"""The work of `rankscope run`: run a command of the user with tracing on, and a collector if none is named.

RANKSCOPE=1, RANKSCOPE_RUN, RANKSCOPE_COLLECTOR, RANKSCOPE_SPOOL --> COMMAND --> torch's entry points (telemetry/attach)
"""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from rich.text import Text

from telemetry.errors import UsageError
from telemetry.record.reader import find_rank_dirs
from telemetry.run_names import checked_run_name
from telemetry.settings import spool_of
from telemetry.stores.address import without_password
from ui.cli.commands.run import RunOptions
from ui.cli.demonstration import output_folder, serving
from ui.cli.foreground import run_in_foreground
from ui.cli.output import progress

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""Environment variable. If it is 0, torch loads no entry points."""
DISABLED = "RANKSCOPE_DISABLED"
STORED_S = 60.0
"""Time for the agents to send the remaining records after the command has ended. Unsent records stay in the spool."""
POLL_S = 0.2


def run(options: RunOptions) -> int:
    _check_command(options.command)
    run_id = checked_run_name(options.run) if options.run else f"run-{time.strftime('%Y%m%d-%H%M%S')}"
    variables = {"RANKSCOPE": "1", "RANKSCOPE_RUN": run_id}
    if options.collector:
        environment = {**os.environ, **variables, "RANKSCOPE_COLLECTOR": options.collector}
        status = run_in_foreground(options.command, environment)
        _report(run_id, spool_of(environment), without_password(options.collector))
        return status
    return _run_with_collector(options, run_id, variables)


def _run_with_collector(options: RunOptions, run_id: str, variables: Mapping[str, str]) -> int:
    folder = output_folder(options.folder, run_id)
    spool = folder / "spool"
    with serving(folder) as collector:
        progress.print(Text(f"run {run_id}; watch it at {collector.url}"))
        places = {"RANKSCOPE_COLLECTOR": collector.url, "RANKSCOPE_SPOOL": str(spool)}
        status = run_in_foreground(options.command, {**os.environ, **variables, **places})
        _wait_until_stored(run_id, spool)
    _report(run_id, spool, f"embedded:{folder / 'store'}")
    return status


def _check_command(command: list[str]) -> None:
    """Raises:
    UsageError: there is no such program, or rankscope would not attach to it.
    """
    if shutil.which(command[0]) is None:
        raise UsageError(
            f"there is no program {command[0]!r}", hint="give a command: rankscope run -- torchrun train.py"
        )
    if os.environ.get(AUTOLOAD, "1") != "1":
        raise UsageError(f"{AUTOLOAD} is {os.environ[AUTOLOAD]!r}: torch would not load rankscope", hint="unset it")
    if os.environ.get(DISABLED, "0") not in ("", "0"):
        raise UsageError(f"{DISABLED} is {os.environ[DISABLED]!r}: nothing would be recorded", hint="unset it")


def _wait_until_stored(run_id: str, spool: Path) -> None:
    """Wait until the agents of the run have ended, at most ``STORED_S``. They end when everything is stored."""
    deadline = time.monotonic() + STORED_S
    while _is_followed(run_id, spool) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _is_followed(run_id: str, spool: Path) -> bool:
    """Whether an agent of this run lives on this host."""
    wanted = {b"telemetry.agent", os.fsencode(spool), os.fsencode(run_id)}
    return any(wanted <= set(_arguments_of(process)) for process in Path("/proc").glob("[0-9]*"))


def _arguments_of(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


def _report(run_id: str, spool: Path, store: str) -> None:
    if find_rank_dirs(spool, run_id):
        progress.print(Text(f"to diagnose: rankscope diagnose {quote(run_id)} --store {quote(store)}"))
        if store.startswith("embedded:"):  # its collector has ended, and the dashboard with it
            progress.print(Text(f"to open the dashboard: rankscope ui --store {quote(store)}"))
        return
    progress.print(
        Text(
            "no rank was traced: the command created no process group, or rankscope did not attach\n\nhint: rankscope "
            "must be installed in the Python environment of the command, and the command must train with torch 2.5 or "
            "newer (docs/guides/attach.md)"
        )
    )
