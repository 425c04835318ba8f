"""Evidence that waits to be shipped: of each rank and kind the newest, so a collector that is away for long costs no
memory."""

import threading
from collections.abc import Iterable, Iterator

from telemetry.evidence.evidence import Evidence, Kind

Owner = tuple[str, int]
"""Run, attempt."""
BATCH_CHARACTERS = 8 * 2**20


class Outbox:
    """For one thread that puts and one that takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[Owner, int, Kind], Evidence] = {}
        self.news = threading.Event()
        """Set by whoever puts; cleared by whoever has seen it."""

    def put(self, owner: Owner, evidence: Iterable[Evidence]) -> None:
        """What was put before of the same rank and kind is out of date."""
        with self._lock:
            self._waiting.update({(owner, one.rank, one.kind): one for one in evidence})
        self.news.set()

    def batches(self) -> Iterator[tuple[Owner, list[Evidence]]]:
        """What waits, in parts fit for one post each. It waits on until it is :meth:`sent`."""
        with self._lock:
            waiting = sorted(self._waiting.items(), key=lambda item: item[0])
        batch: list[Evidence] = []
        size, of = 0, None
        for (owner, _, _), one in waiting:
            if of is not None and batch and (owner != of or size + len(one.body) > BATCH_CHARACTERS):
                yield of, batch
                batch, size = [], 0
            of = owner
            batch.append(one)
            size += len(one.body)
        if of is not None:
            yield of, batch

    def sent(self, owner: Owner, batch: Iterable[Evidence]) -> None:
        """``batch`` is stored; what was put since then waits on."""
        with self._lock:
            for one in batch:
                if self._waiting.get((owner, one.rank, one.kind)) is one:
                    del self._waiting[owner, one.rank, one.kind]

    def __len__(self) -> int:
        return len(self._waiting)
