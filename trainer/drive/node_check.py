"""The command that checks a node, as a process: ``rankscope doctor --node``. Its result is JSON."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.printable import printable
from telemetry.process.child_process import child_environment, python_module
from trainer.drive.records import CheckReport, Measured

CHECK_SECONDS = "15"
"""Time limit of each check."""
MAX_CHECK_BYTES = 1 << 20
FAILED_VERDICTS = ("failed", "slow")


class NodeCheck:
    """The command that checks this node, as a process."""

    def __init__(self, number: int, folder: Path, name: str) -> None:
        self.number = number
        self._folder = str(folder)
        self._output = os.fdopen(os.memfd_create("node-check"), "w+b")  # memory: no other process can open it by name
        command = [*python_module("ui.cli"), "doctor", "--node", "--quick", "--json", "--force"]
        environment = {**child_environment(), "RANKSCOPE_HOST": name}
        self._process = subprocess.Popen(
            [*command, "--seconds", CHECK_SECONDS, "--folder", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )

    def result(self) -> CheckReport | None:
        """The result; None while the command runs."""
        status = self._process.poll()
        if status is None:
            return None
        self._output.seek(0)
        text = self._output.read(MAX_CHECK_BYTES).decode(errors="replace")
        self._output.close()
        if status not in (0, 1):
            return CheckReport(number=self.number, problem=f"status {status}: {printable(text.strip())[:500]}")
        return CheckReport(number=self.number, results=tuple(read_results(text.replace(self._folder, "disk"))))

    def end(self) -> None:
        """Kill the command and its children, and collect its status."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()


def read_results(text: str) -> Iterator[Measured]:
    """The results in the JSON of ``rankscope doctor --node --json``, without checks that were skipped. A check that did
    not finish has the value 0: it is compared with those of other nodes, because a loaded machine delays all.

    Raises:
        UsageError: it is not that JSON.
    """
    try:
        for check in json.loads(text)["checks"]:
            if check["verdict"] != "skipped":
                yield Measured(
                    check=check["check"],
                    subject=check["subject"],
                    failed=check["verdict"] in FAILED_VERDICTS and not check["is_late"],
                    measured=check["measured"],
                    value=0.0 if check["is_late"] else check["value"],
                    detail=check["detail"],
                )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the node check printed no result: {text[:200]!r}", hint="run rankscope doctor --node"
        ) from error
