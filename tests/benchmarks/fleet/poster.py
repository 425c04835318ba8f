"""The requests of agents: what was sent, what was refused, and how long it took."""

import json
import random
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, fields

import pyarrow as pa

from telemetry.errors import RankscopeError
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import Ack
from tests.benchmarks.fleet.traffic import Sums


@dataclass(slots=True)
class Told:
    """What the agents of a process did."""

    sums: Sums = field(default_factory=Sums)
    requests: Counter[str] = field(default_factory=Counter)
    """By table."""
    rows: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """Requests that were not stored, by the error."""
    waits_s: list[float] = field(default_factory=list)
    """Time of each request, of a sample of them."""
    firsts_s: list[float] = field(default_factory=list)
    """Wall clock of the first request of each agent that was stored."""
    beats_s: list[float] = field(default_factory=list)
    """The same for heartbeats."""
    late_s: list[float] = field(default_factory=list)
    """How long rounds waited for a thread of their process, of a sample of them."""
    cpu_s: float = 0.0
    unfinished: int = 0
    """Agents whose last records were not stored in time."""

    @classmethod
    def parse(cls, text: str) -> "Told":
        """The inverse of :meth:`as_json`."""
        values = json.loads(text)
        counts = {name: Counter(values[name]) for name in ("requests", "rows", "failures")}
        return cls(**{**values, **counts, "sums": Sums(**values["sums"])})

    def as_json(self) -> str:
        """All fields."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps({**values, "sums": asdict(self.sums)})

    def add(self, other: "Told") -> None:
        """Add what others did."""
        self.sums.join(other.sums)
        for name in ("requests", "rows", "failures"):
            getattr(self, name).update(getattr(other, name))
        for name in ("waits_s", "firsts_s", "beats_s", "late_s"):
            getattr(self, name).extend(getattr(other, name))
        self.cpu_s += other.cpu_s
        self.unfinished += other.unfinished


SHARE_OF_WAITS = 0.02


class Watched:
    """A ``Poster`` that notes what it sends. For one thread."""

    def __init__(self, client: CollectorClient) -> None:
        self._client = client
        self.told = Told()

    def post(self, table: str, rows: pa.Table) -> Ack:
        began_s = time.monotonic()
        self.told.requests[table] += 1
        try:
            ack = self._client.post(table, rows)
        except RankscopeError as error:
            self.told.failures[error.message.rpartition("collector at ")[2].partition(": ")[2][:60]] += 1
            raise
        self.told.rows[table] += rows.num_rows
        if random.random() < SHARE_OF_WAITS:
            self.told.waits_s.append(time.monotonic() - began_s)
        for name, times in (("", self.told.firsts_s), ("heartbeats", self.told.beats_s)):
            if not times and table.startswith(name):
                times.append(time.time())
        return ack
