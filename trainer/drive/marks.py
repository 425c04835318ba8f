"""Sends the decisions of the driver to the collector, as events of the nodes. The dashboard and alerts read them there.

A thread sends them, so that a collector that does not answer never delays an order. Decisions are also in the folder of
the job. A decision that is not sent before the driver ends is only in that folder.
"""

import queue
import threading
from types import TracebackType

import pyarrow as pa

from telemetry.errors import RankscopeError, UnreachableError
from telemetry.host_metrics import Happening
from telemetry.printable import log
from telemetry.tables import HOST_EVENTS
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import labelled
from trainer.drive.records import Decision
from trainer.run_options import RunOptions

DEVICE = "driver"
RETRY_S = 2.0
CLOSE_S = 10.0
MAX_WAITING = 10_000


class MarkSender:
    """Sends decisions while its ``with`` block runs. Does nothing without a collector."""

    def __init__(self, options: RunOptions) -> None:
        self._run_id = options.run_id or ""
        self._collector = options.collector
        self._waiting: queue.Queue[Decision | None] = queue.Queue(MAX_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="marks", daemon=True)

    def __enter__(self) -> "MarkSender":
        if self._collector:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join(CLOSE_S)

    def send(self, decisions: list[Decision]) -> None:
        """Queue decisions to be sent. Returns at once."""
        if not self._collector:
            return
        for decision in decisions:
            try:
                self._waiting.put_nowait(decision)
            except queue.Full:
                log(f"the collector does not answer: the mark of decision {decision.name} is not sent")

    def _run(self) -> None:
        assert self._collector is not None
        with CollectorClient(self._collector) as client:
            while (decision := self._waiting.get()) is not None:
                while not self._sent(client, decision) and not self._closing.wait(RETRY_S):
                    pass

    def _sent(self, client: CollectorClient, decision: Decision) -> bool:
        """Send a decision. Returns False if it must be sent again."""
        row = {
            "host": decision.node or DEVICE,
            "at_ns": decision.at_ns,
            "device": DEVICE,
            "name": Happening.DRIVER,
            "text": f"{decision.name}: {decision.reason}",
        }
        rows = pa.Table.from_pylist([row], schema=HOST_EVENTS)
        try:
            client.post("host_events", labelled(rows, self._run_id, max(decision.attempt, 0)))
        except UnreachableError:
            return False
        except RankscopeError as error:
            log(f"the mark of decision {decision.name} was refused: {error.message}")
        return True
