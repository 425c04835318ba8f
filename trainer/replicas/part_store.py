"""The parts that one node holds in memory.

newest generation       being received
previous generation     complete on all nodes: ranks begin a generation together, when the previous one is complete
older generations       dropped before the first byte of a new generation is received
"""

import zlib
from collections.abc import Iterable
from weakref import WeakSet

from telemetry.errors import UsageError
from trainer.replicas.parts import Generation, Part

LEAST_FREE = 0.1
"""Share of the memory of the node that stays free."""


class RefusedError(UsageError):
    """A part cannot be held."""


class Incoming:
    """A part while its bytes arrive."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._content = bytearray(part.size_bytes)
        self._arrived = 0

    def add(self, piece: bytes) -> None:
        """Add the next bytes.

        Raises:
            RefusedError: there are more bytes than the header states.
        """
        end = self._arrived + len(piece)
        if end > len(self._content):
            raise RefusedError("the part has more bytes than its header states", hint="send the part again")
        self._content[self._arrived : end] = piece
        self._arrived = end

    @property
    def missing_bytes(self) -> int:
        """Number of bytes that have not arrived. The kernel provides memory for bytes only when they arrive."""
        return len(self._content) - self._arrived

    def files(self) -> dict[str, memoryview]:
        """The content of each file.

        Raises:
            RefusedError: bytes are missing, or a checksum does not match.
        """
        if self.missing_bytes:
            raise RefusedError("the part is incomplete", hint="send the part again")
        content, begin, found = memoryview(self._content), 0, {}
        for file in self.part.files:
            found[file.name] = content[begin : begin + file.size_bytes]
            begin += file.size_bytes
            if zlib.crc32(found[file.name]) != file.crc32:
                raise RefusedError(f"{file.name} is damaged", hint="send the part again")
        return found


class PartStore:
    """The parts that this node holds. Not thread-safe."""

    def __init__(self) -> None:
        self._held: dict[tuple[Generation, int], tuple[Part, dict[str, memoryview]]] = {}
        self._arriving: WeakSet[Incoming] = WeakSet()
        """Parts of checkpoints that are being received. Only the handler of the request has a reference to its part. So
        if the request is aborted, the part is deleted."""

    def begin(self, part: Part, *, total_bytes: int, free_bytes: int) -> Incoming:
        """Make room for ``part``. The node has ``total_bytes`` of memory, of which ``free_bytes`` are free now.

        Raises:
            RefusedError: the part is older than a part that is held, or too large.
        """
        generations = {generation for generation, _ in self._held}
        if generations and part.generation[:2] < max(generations)[:2]:
            raise RefusedError(
                "this keeper already has a newer replica", hint="an earlier attempt must not send any more"
            )
        freed = self.keep_only({part.generation, max(generations - {part.generation}, default=part.generation)})
        promised = sum(incoming.missing_bytes for incoming in self._arriving)
        if free_bytes + freed - promised - part.size_bytes < LEAST_FREE * total_bytes:
            raise RefusedError(
                f"a part of {part.size_bytes} bytes leaves too little free memory", hint="train without --replicas"
            )
        incoming = Incoming(part)
        self._arriving.add(incoming)
        return incoming

    def end(self, incoming: Incoming) -> None:
        """Hold a part that has arrived.

        Raises:
            RefusedError: the part is cut off or damaged.
        """
        part = incoming.part
        self._held[part.generation, part.rank] = part, incoming.files()

    def keep_only(self, kept: Iterable[Generation]) -> int:
        """Drop all other generations. Returns the number of bytes that this frees."""
        kept = set(kept)
        dropped = [key for key in self._held if key[0] not in kept]
        return sum(self._held.pop(key)[0].size_bytes for key in dropped)

    def parts(self) -> list[Part]:
        """All parts that are held."""
        return [part for part, _ in self._held.values()]

    def read(self, generation: Generation, rank: int, name: str) -> memoryview | None:
        """The content of a file; None if it is not held."""
        _, files = self._held.get((generation, rank), (None, {}))
        return files.get(name)
