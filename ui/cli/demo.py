"""The work of `rankscope demo`: train eight ranks in 3D with a fault, and show that it is found."""

import os
import signal
import time
import webbrowser
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from shutil import disk_usage
from typing import Any

from rich.markup import escape
from rich.text import Text

from diagnose.report import report_object, report_text
from telemetry.errors import UsageError
from trainer.faults.inject import parse_fault
from trainer.recipes import recipe_named
from ui.cli.commands.demo import DemoOptions
from ui.cli.demonstration import Demonstration, Outcome, output_folder, serving, train_and_diagnose
from ui.cli.output import out, progress

MIN_FREE_BYTES = 64 * 2**20
"""Free space for the store, the rank files and the logs."""


def demo(options: DemoOptions) -> int:
    # Wrong settings of the fault are reported before anything is started.
    parse_fault(options.fault, recipe_named(options.recipe).parallel.topology, num_steps=options.steps)
    _check_installed()
    wanted = _wanted(options)
    where = wanted.out
    _check_room(where)
    progress.print(f"[bold]1.[/] collector with an embedded store in {escape(str(where / 'store'))}")
    with serving(where) as collector:
        training = f"training {options.recipe}, {options.steps} steps, fault {escape(options.fault)}"
        progress.print(f"[bold]2.[/] {training}; watch it at {collector.url}")
        outcome = train_and_diagnose(wanted, collector)
        progress.print("[bold]3.[/] ran all detectors; none of them reads the ground truth")
        _print(outcome, options.json)
        again = f"rankscope diagnose --store embedded:{escape(str(where / 'store'))}"
        progress.print(f"to diagnose again after the demo has ended: {again}")
        if not options.exit:
            _keep_open(collector.url)
    return outcome.exit_status


def _wanted(options: DemoOptions) -> Demonstration:
    run_id = f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    return Demonstration(
        out=output_folder(options.folder, run_id),
        run_id=run_id,
        recipe=options.recipe,
        num_steps=options.steps,
        num_microbatches=options.microbatches,
        fault=options.fault,
    )


def _check_installed() -> None:
    """Check the packages that the demo needs: it starts all processes of rankscope.

    Raises:
        ModuleNotFoundError: one of them cannot start.
    """
    for module in ("torch", "pynvml", "chdb", "dash"):
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def _check_room(folder: Path) -> None:
    """Check the free space: on a full disk, the collector cannot start or write the reason to its log.

    Raises:
        UsageError: there is too little free space.
    """
    free = disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise UsageError(
            f"{folder}: {free // 2**20} MiB free, the demo needs {MIN_FREE_BYTES // 2**20} MiB",
            hint="free some space, or use a folder on another disk: --out DIR",
        )


def _print(outcome: Outcome, json: bool) -> None:
    losses = {"first": outcome.losses[0], "last": outcome.losses[-1]} if outcome.losses else {}
    if json:
        out.print_json(data={**report_object(outcome.report), "truth": outcome.truth, "loss": losses})
        return
    out.print(report_text(outcome.report))
    out.print(Text(f"truth: {truth_in_words(outcome.truth)}", style="bold"))
    if losses:
        out.print(f"loss: first {losses['first']:.3f}, last {losses['last']:.3f}")
    if outcome.train_status:
        out.print(f"training: {_how_it_ended(outcome)}")


def _how_it_ended(outcome: Outcome) -> str:
    if outcome.ended_by_demo:
        return "ended by the demo, because no step was completed"
    return f"ended with exit status {outcome.train_status}; see its logs"


def truth_in_words(truth: Mapping[str, Any]) -> str:
    """The injected fault in words: ``fault slow on rank 5 of host vm: factor 1.4, first step 0, last step 9``."""
    if truth["kind"] == "none":
        return "no fault"
    settings = [name for name in truth if name not in ("kind", "rank", "host", "num_steps")]
    values = ", ".join(f"{name.replace('_', ' ')} {truth[name]}" for name in settings)
    return f"fault {truth['kind']} on rank {truth['rank']} of host {truth['host']}: {values}"


def _keep_open(url: str) -> None:
    """Hold the dashboard open until Ctrl-C."""
    progress.print(f"[bold]4.[/] dashboard at {url}; Ctrl-C ends it")
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
    try:
        signal.pause()
    except KeyboardInterrupt:
        progress.print("ended")
