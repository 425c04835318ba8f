"""The work of `rankscope doctor`: check this machine, this node, nodes in pairs, a job, or the clocks of a run."""

import importlib.metadata
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from diagnose.model.host_clocks import WindowClocks, newest_clocks
from diagnose.model.load import newest_attempt
from diagnose.nodecheck.check import Check
from diagnose.nodecheck.network import HINT, Rendezvous
from diagnose.nodecheck.node import NodeChecks, read_expectations
from diagnose.nodecheck.pairs.paired_test import PairedTest
from telemetry.clocks.align_evidence import HostClock
from telemetry.errors import UsageError
from telemetry.printable import printable
from telemetry.settings import spool_of
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Runs
from ui.cli.commands.doctor import DoctorOptions
from ui.cli.job_checks import checks_of_job
from ui.cli.node_checks import check_this_node, pair_this_node
from ui.cli.output import out
from ui.cli.readers import open_reader

NUMBERS = range(1, 6)
"""Columns that are aligned to the right."""


def show_clocks(store: str, run: str, attempt: int | None, *, json: bool) -> bool:
    """Print the clocks of the newest window. Returns whether a host is not aligned.

    Raises:
        UnknownRunError: the store does not have this run.
        UsageError: no step of the run is finished.
        UnreachableError: the store does not answer.
    """
    with open_reader(store) as reader:
        run_id, number = newest_attempt(reader, run, attempt)
        found = newest_clocks(reader, run_id, number, _last_step(reader, run_id, number))
    if json:
        out.print_json(data=clocks_object(run_id, number, found))
    else:
        out.print(clocks_text(found), markup=False, highlight=False)
    return not all(one.aligned for one in found.clocks)


def _last_step(reader: Reader, run_id: str, attempt: int) -> int:
    runs = reader.read(Runs(run_ids=(run_id,))).to_pylist()
    return next(int(row["last_step"]) for row in runs if (row["run_id"], row["attempt"]) == (run_id, attempt))


def clocks_object(run_id: str, attempt: int, found: WindowClocks) -> dict[str, Any]:
    """The clocks as an object for JSON."""
    return {
        "schema": 1,
        "run": run_id,
        "attempt": attempt,
        "reference": found.clocks[0].reference,
        "window": {"first_step": found.first_step, "last_step": found.last_step},
        "clocks": [asdict(one) | {"aligned": one.aligned} for one in found.clocks],
    }


def clocks_text(found: WindowClocks) -> str:
    """The clocks as text, with a line for each host."""
    rows = [("host", "offset", "bound", "drift", "events", "time span", "method", "note"), *map(_cells, found.clocks)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.rjust(width) if at in NUMBERS else cell.ljust(width) for at, (cell, width) in enumerate(cells))
        for cells in (zip(row, widths, strict=True) for row in rows)
    )
    reference = printable(found.clocks[0].reference)
    head = f"clocks over steps {found.first_step} to {found.last_step}, against {reference}"
    return "\n".join((head, *(line.rstrip() for line in lines)))


def _cells(one: HostClock) -> tuple[str, ...]:
    if not one.aligned:
        return printable(one.host), "unknown", "", "", "", "", one.method, one.reason
    lasted_s = (one.last_ns - one.first_ns) / 1e9
    return (
        printable(one.host),
        f"{one.offset_ns / 1e6:+,.3f} ms",
        f"±{one.bound_ns / 1e6:,.3f} ms",
        f"{one.drift_ppm:+.2f} ppm",
        str(one.num_events),
        f"{lasted_s:.0f} s",
        one.method,
        one.reason,
    )


PACKAGES = ("rankscope", "telemetry", "trainer", "diagnose", "ui")
LIBRARIES = {
    "torch": "the trainer and GPU clocks; pip install 'rankscope[train]'",
    "pyarrow": "the agent; pip install 'rankscope[agent]'",
    "psutil": "the agent; pip install 'rankscope[agent]'",
    "chdb": "the embedded store; pip install 'rankscope[store]'",
    "clickhouse-driver": "a ClickHouse server; pip install 'rankscope[store]'",
    "dash": "the dashboard; pip install 'rankscope[ui]'",
}
MIN_SPOOL_BYTES = 2 * 2**30


def doctor(options: DoctorOptions) -> int:
    rendezvous = _rendezvous(options)
    if options.node and options.pairs:
        raise UsageError("--node and --pairs cannot be used together", hint="run one, then the other")
    if options.run is not None and (options.node or options.pairs):
        raise UsageError("--run queries a store, --node and --pairs test this machine", hint="run one, then the other")
    if options.job and (options.node or options.pairs):
        raise UsageError("--job reads settings, --node and --pairs test this machine", hint="run one, then the other")
    if options.job:
        return int(_show(checks_of_job(options), json=options.json))
    if options.run is not None:
        return int(show_clocks(options.store, options.run, options.attempt, json=options.json))
    if options.node:
        return int(_check_node(options, rendezvous))
    if options.pairs:
        return int(_test_pairs(options, rendezvous))
    return int(_show(fitness(), json=options.json))


def _check_node(options: DoctorOptions, rendezvous: Rendezvous | None) -> bool:
    place = {} if options.folder is None else {"folder": options.folder}
    checks = NodeChecks(
        deadline_s=options.seconds,
        interface=options.interface,
        rendezvous=rendezvous,
        beside_others=options.force,
        quick=options.quick,
        **place,
    )
    expectations = read_expectations(options.expect) if options.expect else {}
    return check_this_node(checks, expectations, json=options.json)


def _test_pairs(options: DoctorOptions, rendezvous: Rendezvous | None) -> bool:
    if rendezvous is None:
        raise UsageError("--pairs needs a rendezvous of the nodes", hint=HINT)
    return pair_this_node(PairedTest(rendezvous=rendezvous, deadline_s=options.seconds), json=options.json)


def _rendezvous(options: DoctorOptions) -> Rendezvous | None:
    """The rendezvous of the nodes. None if none of its three options is given."""
    endpoint, index, nodes = options.rdzv_endpoint, options.node_rank, options.nnodes
    if endpoint is None and index is None and nodes is None:
        return None
    if endpoint is None or index is None or nodes is None:
        raise UsageError("--rdzv-endpoint, --node-rank and --nnodes must be used together", hint=HINT)
    return Rendezvous(
        endpoint=endpoint, index=index, nodes=nodes, interface=options.interface, patience_s=options.patience
    )


def _show(checks: list[Check], *, json: bool) -> bool:
    """Print the checks. Returns whether one is not fit."""
    if json:
        out.print_json(data=fitness_object(checks))
    else:
        out.print(fitness_table(checks))
    return not all(check.fit for check in checks)


def fitness() -> list[Check]:
    """Run all checks of this machine."""
    return [*_names(), *_libraries(), _python(), _spool_space(), _gpu()]


def fitness_object(checks: list[Check]) -> dict[str, Any]:
    """The checks as an object for JSON."""
    return {"schema": 1, "checks": [asdict(check) for check in checks]}


def fitness_table(checks: list[Check]) -> Table:
    """The checks as a table."""
    table = Table("", "check", "found", "hint", box=None, header_style="bold")
    for check in checks:
        fit = "[green]ok[/]" if check.fit else "[red]no[/]"
        table.add_row(fit, check.name, escape(printable(check.found)), escape(check.hint))
    return table


def _names() -> Iterator[Check]:
    """Check that rankscope's packages are found under their names. Most names are general words, so another
    distribution or a file of the user can shadow them."""
    home = Path(__file__).resolve().parents[2]
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        origin = Path(spec.origin or "").resolve() if spec else None
        ours = origin is not None and home in origin.parents
        yield Check(
            name=f"package {package}",
            fit=ours,
            found=str(origin.parent if origin else "missing"),
            hint=""
            if ours
            else "another package or folder of this name comes first on sys.path: run the command in another folder",
        )


def _libraries() -> Iterator[Check]:
    for name, needed_by in LIBRARIES.items():
        try:
            yield Check(name=name, fit=True, found=importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Check(name=name, fit=False, found="not installed", hint=f"needed by {needed_by}")


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    fit = sys.version_info >= (3, 11)
    return Check(name="Python", fit=fit, found=version, hint="" if fit else "use Python 3.11 or newer")


def _spool_space() -> Check:
    """Free space in the folder of rank files of this user, or in its nearest parent that exists."""
    folder = spool_of().absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(there).free
    return Check(
        name="room for rank files",
        fit=free >= MIN_SPOOL_BYTES,
        found=f"{free / 2**30:.1f} GiB free in {folder}",
        hint="" if free >= MIN_SPOOL_BYTES else "set RANKSCOPE_SPOOL to a local disk with 2 GiB or more",
    )


def _gpu() -> Check:
    """Report whether there is a GPU. A GPU is optional, so the check never fails."""
    return Check(name="NVIDIA driver", fit=True, found=shutil.which("nvidia-smi") or "none: ranks run on the CPU")
