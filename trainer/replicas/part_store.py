"""The parts that one node holds in memory.

newest generation       being received
the one before          complete on all nodes, because ranks begin a generation together, after the one before
older                   dropped before the first byte of a new generation is received
"""

import zlib
from collections.abc import Iterable

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
        """The next bytes.

        Raises:
            RefusedError: they are more than the header says.
        """
        end = self._arrived + len(piece)
        if end > len(self._content):
            raise RefusedError("more bytes than the header of the part says", hint="send the part again")
        self._content[self._arrived : end] = piece
        self._arrived = end

    def files(self) -> dict[str, memoryview]:
        """The content of each file.

        Raises:
            RefusedError: bytes are missing, or a checksum does not match.
        """
        if self._arrived < len(self._content):
            raise RefusedError("a part is cut off", hint="send the part again")
        content, begin, found = memoryview(self._content), 0, {}
        for file in self.part.files:
            found[file.name] = content[begin : begin + file.size_bytes]
            begin += file.size_bytes
            if zlib.crc32(found[file.name]) != file.crc32:
                raise RefusedError(f"{file.name} is damaged", hint="send the part again")
        return found


class PartStore:
    """Not for several threads."""

    def __init__(self) -> None:
        self._held: dict[tuple[Generation, int], tuple[Part, dict[str, memoryview]]] = {}

    def begin(self, part: Part, *, total_bytes: int, free_bytes: int) -> Incoming:
        """Make room for ``part``. Memory of the node: ``total_bytes``, of which ``free_bytes`` are free now.

        Raises:
            RefusedError: it is older than what is held, or too large.
        """
        generations = {generation for generation, _ in self._held}
        if generations and part.generation[:2] < max(generations)[:2]:
            raise RefusedError("a newer replica is held already", hint="an earlier attempt must not send any more")
        freed = self.keep_only({part.generation, max(generations - {part.generation}, default=part.generation)})
        if free_bytes + freed - part.size_bytes < LEAST_FREE * total_bytes:
            raise RefusedError(
                f"a part of {part.size_bytes} bytes leaves too little free memory", hint="train without --replicas"
            )
        return Incoming(part)

    def end(self, incoming: Incoming) -> None:
        """Hold a part that has arrived.

        Raises:
            RefusedError: it is cut off or damaged.
        """
        part = incoming.part
        self._held[part.generation, part.rank] = part, incoming.files()

    def keep_only(self, kept: Iterable[Generation]) -> int:
        """Drop all other generations; the number of bytes that are free now."""
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
