"""The connection of an executor to the driver, and the addresses and ports of its node."""

import socket
import time

import httpx
import psutil

from telemetry.errors import RankscopeError, UsageError
from trainer.drive.folder import DRIVER, DriverPlace, JobFolder
from trainer.drive.records import Order, Report
from trainer.json_records import decode, encode

ANSWER_S = 5.0


class FreePort:
    """A port of this node that nothing else uses. It is kept until it is released for the ranks, or for a paired test,
    and another port is taken when they have ended."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket: socket.socket | None = None
        self.number = 0
        self.take()

    def take(self) -> None:
        """Keep a port for this node: the same one until it is released, then another one. No port is kept while the
        address does not exist: a network can be down for a while."""
        if not self.address or self._socket is not None:
            return
        found = socket.socket()
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((self.address, 0))
        except OSError:
            found.close()
            return
        self._socket, self.number = found, found.getsockname()[1]

    def release(self) -> None:
        """Release the port, so that ranks or a paired test can use it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def interface_of(address: str) -> str:
    """The network interface with an address.

    Raises:
        UsageError: no interface of this host has the address.
    """
    found = {
        each.address: name
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    }
    if address not in found:
        raise UsageError(
            f"{address} is not an address of this host",
            hint=f"use the address by which other nodes reach it: {', '.join(sorted(found))}",
        )
    return found[address]


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
        """The token of the driver; empty if the last exchange failed, or before the first one."""
        return self._place.token if self._place is not None else ""

    def exchange(self, report: Report) -> Order | None:
        """Send a report. Returns the order, or None if no driver answers."""
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
