"""The commands that check a node, as processes: ``rankscope doctor --node`` and ``--pairs``. Their results are JSON."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.printable import printable
from telemetry.process.child_process import child_environment, python_module
from telemetry.process.signals import FROM_OUTSIDE
from trainer.drive.records import AccusedNode, CheckReport, Measured, PairReport, PairRun, PairsOrder
from trainer.rank_status import manner

CHECK_SECONDS = "15"
"""Time limit of each check."""
PAIR_SECONDS = "10"
"""Time limit of each round of a paired test."""
MAX_BYTES = 1 << 20
FOUND = (0, 1)
"""Exit statuses with a result."""
CUT_OFF = 3
"""Exit status of a paired test whose node 0 does not answer."""
FAILED_VERDICTS = ("failed", "slow")


class DoctorCommand:
    """``rankscope doctor`` on this node, as a process. It ends with the executor."""

    def __init__(self, options: Sequence[str], name: str) -> None:
        self._output = os.fdopen(os.memfd_create("doctor"), "w+b")  # memory: no other process can open it by name
        self._process = subprocess.Popen(
            [*python_module("ui.cli"), "doctor", *options, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**child_environment(), "RANKSCOPE_HOST": name},
            start_new_session=True,
        )

    def poll(self) -> tuple[int, str] | None:
        """Exit status and output; None while the command runs."""
        status = self._process.poll()
        if status is None:
            return None
        self._output.seek(0)
        text = self._output.read(MAX_BYTES).decode(errors="replace")
        self._output.close()
        return status, text

    def end(self) -> None:
        """Kill the command and its children, and collect its status."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()


class NodeCheck:
    """The checks of this node."""

    def __init__(self, number: int, folder: Path, name: str) -> None:
        self.number = number
        self._folder = str(folder)
        options = ("--node", "--quick", "--force", "--seconds", CHECK_SECONDS, "--folder", self._folder)
        self._command = DoctorCommand(options, name)

    def result(self) -> CheckReport | None:
        """The result; None while the command runs."""
        found = self._command.poll()
        if found is None:
            return None
        status, text = found
        if status in FROM_OUTSIDE:
            return CheckReport(number=self.number, killed=f"the command {manner(status)}")
        if status not in FOUND:
            return CheckReport(number=self.number, problem=_problem(status, text))
        try:
            results = tuple(read_results(text.replace(self._folder, "disk")))
        except UsageError as error:
            return CheckReport(number=self.number, problem=error.message)
        return CheckReport(number=self.number, results=results)

    def end(self) -> None:
        self._command.end()


class PairedCheck:
    """The part of this node in a paired test."""

    def __init__(self, order: PairsOrder, name: str) -> None:
        self.number = order.number
        place = ("--rdzv-endpoint", order.endpoint, "--node-rank", str(order.index), "--nnodes", str(order.nodes))
        limits = ("--seconds", PAIR_SECONDS, "--patience", f"{order.patience_s:g}")
        self._command = DoctorCommand(("--pairs", *place, *limits), name)

    def result(self) -> PairReport | None:
        """The verdict; None while the command runs."""
        found = self._command.poll()
        if found is None:
            return None
        status, text = found
        if status in FROM_OUTSIDE:
            return PairReport(number=self.number, problem=f"the command {manner(status)}", is_killed=True)
        if status not in FOUND:
            return PairReport(number=self.number, problem=_problem(status, text), is_cut_off=status == CUT_OFF)
        try:
            return read_verdict(self.number, text)
        except UsageError as error:
            return PairReport(number=self.number, problem=error.message)

    def end(self) -> None:
        self._command.end()


def _problem(status: int, text: str) -> str:
    return f"status {status}: {printable(text.strip())[:500]}"


def read_verdict(number: int, text: str) -> PairReport:
    """The verdict in the JSON of ``rankscope doctor --pairs --json``.

    Raises:
        UsageError: ``text`` is not that JSON.
    """
    try:
        found = json.loads(text)
        runs = [(run["members"], run["seconds"] is None) for run in found["runs"]]
        return PairReport(
            number=number,
            accused=tuple(
                AccusedNode(index=bad["node"], failed=bad["failed"], ratio=bad["ratio"], cause=bad["cause"])
                for bad in found["bad"]
            ),
            absent=tuple(found["absent"]),
            runs=tuple(PairRun(members=(first, second), failed=failed) for (first, second), failed in runs),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the paired test printed no verdict: {text[:200]!r}", hint="run rankscope doctor --pairs"
        ) from error


def read_results(text: str) -> Iterator[Measured]:
    """The results in the JSON of ``rankscope doctor --node --json``, without checks that were skipped. A check that did
    not finish has the value 0, which is compared with the values of other nodes, because a loaded machine delays all
    nodes. A check that something else killed has no value.

    Raises:
        UsageError: ``text`` is not that JSON.
    """
    try:
        for check in json.loads(text)["checks"]:
            if check["verdict"] != "skipped":
                yield Measured(
                    check=check["check"],
                    subject=check["subject"],
                    failed=check["verdict"] in FAILED_VERDICTS and not check["is_late"] and not check["is_killed"],
                    measured=check["measured"],
                    value=0.0 if check["is_late"] else check["value"],
                    detail=check["detail"],
                    killed=check["is_killed"],
                )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the node check printed no result: {text[:200]!r}", hint="run rankscope doctor --node"
        ) from error
