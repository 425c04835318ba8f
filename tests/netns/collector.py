"""A real collector with a token on the management network of a cluster, and queries to it from outside."""

import json
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from telemetry.settings import DEFAULT_PORT
from telemetry.stores.interface import Query
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.forkserver import Program
from tests.netns.cluster import COLLECTOR_ADDRESS, SWITCH, Cluster, enter_namespace
from tests.scenarios.command import Answer, rankscope

TOKEN = "of-this-cluster"
URL = f"http://{COLLECTOR_ADDRESS}:{DEFAULT_PORT}"
ENVIRONMENT = {"RANKSCOPE_TOKEN": TOKEN, "NO_COLOR": "1", "COLUMNS": "200", "NO_PROXY": COLLECTOR_ADDRESS}
END_S = 15.0
ANSWERS = (0, 1)
"""Exit statuses of a command without and with findings."""


class Collector:
    """``rankscope collect`` with an embedded store, during the block.

    Answers typed queries (a ``Reader``) from any thread of a process outside the cluster. Can serve many jobs in turn.
    """

    url = URL

    def __init__(self, cluster: Cluster, store_dir: Path) -> None:
        self.cluster = cluster
        self.store = f"embedded:{store_dir}"
        self._log = store_dir.with_suffix(".log")
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            enter = partial(enter_namespace, self.cluster.namespace(SWITCH))
            process = Program(self._command(), self._log, enter, **ENVIRONMENT)
            undo.callback(_end, process)
            self._client = undo.enter_context(CollectorClient(URL, TOKEN))
            until(lambda: self._healthy() or process.poll() is not None, seconds=60, what="the collector")
            assert process.poll() is None, self.said()
            self._cleanup = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def said(self) -> str:
        return self._log.read_text()

    def read(self, query: Query) -> pa.Table:
        """The rows of ``query``."""
        with self.cluster.inside(SWITCH):
            return self._client.read(query)

    def rankscope(self, *arguments: object) -> Answer:
        """Run `rankscope ARGUMENTS --store URL` on the management network to its end."""
        enter = partial(enter_namespace, self.cluster.namespace(SWITCH))
        return rankscope(*arguments, "--store", URL, first=enter, **ENVIRONMENT)

    def ask(self, *arguments: object) -> dict[str, Any]:
        """The JSON object of a command such as ``ask("diagnose", "hang", run)``. The command must succeed."""
        answer = self.rankscope(*arguments, "--json")
        assert answer.status in ANSWERS, answer
        found: dict[str, Any] = json.loads(answer.out)
        return found

    def _healthy(self) -> bool:
        with self.cluster.inside(SWITCH):
            return self._client.healthy()

    def _command(self) -> list[str]:
        listen = ["--host", COLLECTOR_ADDRESS, "--port", str(DEFAULT_PORT)]
        return ["-m", "ui.cli", "collect", "--no-dashboard", "--store", self.store, *listen]


def _end(process: Program) -> None:
    """Send SIGTERM, so that queued rows are stored. Send SIGKILL if that takes too long."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
