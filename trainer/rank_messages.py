"""Messages of a rank to the process that started it: why it fails, why its newest checkpoint could not be written, or
that checkpoints will not fit on the disk.

    rank --- a pipe: kind and one line ---> launcher, executor ---> terminal, driver

The log of the rank has the same line. But users seldom read the log while the training continues, and a full disk loses
the line.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from os import set_blocking

from telemetry.printable import one_line

MAX_CHARACTERS = 800
"""Longest line. So the kernel writes a message to the pipe as a whole, or not at all."""


class About(StrEnum):
    """The subject of a message."""

    FAILURE = "failure"
    """Why the rank ends."""
    CHECKPOINT = "checkpoint"
    """Why the rank could not write its newest checkpoint; empty if it could."""
    SPACE = "space"
    """A warning: the disk has too little space for the checkpoints of the job."""


Send = Callable[[About, str], None]


class RankMessages:
    """The newest message of each rank."""

    def __init__(self) -> None:
        self._receivers: dict[int, Connection] = {}
        self._newest: dict[tuple[About, int], str] = {}

    def connect(self, rank: int) -> Connection:
        """A connection for the process of a rank. Close it here when the process has started."""
        receiver, sender = Pipe(duplex=False)
        self._receivers[rank] = receiver
        return sender

    def failure(self, rank: int) -> str:
        """Why a rank failed; empty if it sent no reason."""
        self._receive()
        return self._newest.get((About.FAILURE, rank), "")

    @property
    def checkpoint_problem(self) -> str:
        """Why the newest checkpoint could not be written, from the first rank, by number, that could not. Empty if no
        rank reported a problem."""
        self._receive()
        found = sorted((rank, text) for (about, rank), text in self._newest.items() if about is About.CHECKPOINT)
        return next((text for _, text in found if text), "")

    @property
    def space_warning(self) -> str:
        """A warning that the disk has too little space for checkpoints; empty without one."""
        self._receive()
        return self._newest.get((About.SPACE, 0), "")

    def _receive(self) -> None:
        for rank, receiver in self._receivers.items():
            with suppress(EOFError, OSError, ValueError):
                while receiver.poll():
                    about, _, text = receiver.recv_bytes().decode(errors="replace").partition(" ")
                    self._newest[About(about), rank] = text


def sender_over(connection: Connection | None) -> Send:
    """The function with which a rank sends messages. It never waits and never raises, so a message may be lost."""

    def send(about: About, text: str) -> None:
        if connection is not None:
            with suppress(OSError):
                connection.send_bytes(f"{about} {one_line(text, MAX_CHARACTERS)}".encode(errors="replace"))

    if connection is not None:
        set_blocking(connection.fileno(), False)
    return send
