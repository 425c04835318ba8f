"""The driver, as an executor sees it."""

import socket
import time

import httpx

from telemetry.errors import RankscopeError
from trainer.drive.folder import DRIVER, DriverPlace, JobFolder
from trainer.drive.records import Order, Report, decode, encode

ANSWER_S = 5.0


class FreePort:
    """A port of this node that nothing else uses, kept until it is released."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self.number = 0
        self.take()

    def take(self) -> None:
        """Keep a port for this node, also after a release: then it is another one."""
        self.release()
        if not self._address:
            return
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((self._address, 0))
        self.number = self._socket.getsockname()[1]

    def release(self) -> None:
        """Let the ranks use it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class DriverClient:
    """Sends reports. The address of the driver may change: it is read again after each failure."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._http = httpx.Client(timeout=ANSWER_S, trust_env=False)
        self._place: DriverPlace | None = None
        self._answered_s = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the last answer."""
        return time.monotonic() - self._answered_s

    @property
    def token(self) -> str:
        """Of the job, as the driver that answered last uses it; empty: none has answered."""
        return self._place.token if self._place is not None else ""

    def exchange(self, report: Report) -> Order | None:
        """Send a report. The order, or None if no driver answers."""
        try:
            if self._place is None:
                self._place = self._folder.read(DRIVER, DriverPlace)
            if self._place is None:
                return None
            answer = self._http.post(
                f"{self._place.url}/v1/reports",
                content=encode(report),
                headers={"Authorization": f"Bearer {self._place.token}", "Content-Type": "application/json"},
            )
            answer.raise_for_status()
            order = decode(Order, answer.content)
        except (httpx.HTTPError, httpx.InvalidURL, RankscopeError, OSError):
            self._place = None
            return None
        self._answered_s = time.monotonic()
        return order
