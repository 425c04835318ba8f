"""What a rank usually issues, from its own records: every step repeats the same operations.

If a group of two disagrees on an operation, there is no majority. Then the member that differs from its previous step
is the one that left the usual order:

    tp group, step 7   ... #294 all-gather   #295 reduce-scatter ...     24 operations a step
              step 8   ... #318 reduce-scatter                           usually all-gather: this rank skipped one
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from telemetry.errors import UnreadableError
from telemetry.group_names import NO_PEER, peer_of_mask, resolved_peers
from telemetry.record.layout import RECORD, RecordKind
from telemetry.record.reader import RankReader
from telemetry.record.state_page import LiveState
from telemetry.stages import STAGE_BY_CODE, Stage, Stream
from telemetry.topology import Topology

MAX_OLDER_RECORDS = 50_000
KEEP_RECORDS = 8_192
NUM_RECENT = 6
STREAM_OF = {1 << 0: Stream.DP, 1 << 2: Stream.TP}
"""Mask of a group of a plain grid -> its stream. Records of older versions name no group and have a plain grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A recorded collective. ``stage``: its label."""

    seq: int
    stage: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """The recorded operations around an operation of the live page. Its fields are stored with the operation in the
    ``state`` evidence."""

    usual: Issued | None = None
    """The operation at the same place one or more steps before."""
    recent: tuple[Issued, ...] = ()
    """The newest completed operations, ascending."""


class RecentOperations:
    """The newest operations and steps of one rank. Records that are shipped and reclaimed are remembered."""

    def __init__(self, reader: RankReader) -> None:
        self._reader = reader
        self._next_seq: int | None = None
        self._spans: NDArray[np.void] = np.zeros(0, RECORD)

    def read_on(self) -> None:
        """Add the records since the last call. Unreadable files are ignored."""
        with suppress(UnreadableError, OSError):
            at = self._next_seq
            if at is None:
                at = max(0, self._reader.end_seq(self._reader.acked()) - MAX_OLDER_RECORDS)
            while len((block := self._reader.read(at)).records):
                at = block.next_seq
                spans = block.records[block.records["kind"] == RecordKind.SPAN]
                wanted = spans[(spans["op_seq"] > 0) | (spans["stage"] == Stage.STEP)]
                self._spans = np.concatenate([self._spans, wanted])[-KEEP_RECORDS:]
            self._next_seq = at

    def habits(self, state: LiveState) -> list[Habit]:
        """The habit for each operation of the page, in order."""
        found: list[Habit] = []
        for operation in state.operations:
            if not operation.mask or operation.peer >= 0:
                found.append(Habit())
                continue
            own = self._of_group(operation.mask)
            recent = own[np.argsort(own["op_seq"])][-NUM_RECENT:]
            found.append(Habit(usual=_usual(own, operation.issued), recent=tuple(_issued(span) for span in recent)))
        return found

    def steps_ns(self) -> list[int]:
        """The durations of the newest steps, without step 0, which is always long."""
        steps = self._spans[(self._spans["stage"] == Stage.STEP) & (self._spans["step"] > 0)]
        return [int(duration_ns) for duration_ns in steps["duration_ns"]]

    def _of_group(self, mask: int) -> NDArray[np.void]:
        """The recorded collectives of a group."""
        topology: Topology | None = None
        with suppress(UnreadableError, OSError):
            topology = self._reader.identity().topology
        peer, numbered = self._spans["peer"], self._spans["op_seq"] > 0
        if topology is not None:
            peer = resolved_peers(peer, topology)
        named: NDArray[np.void] = self._spans[(peer == peer_of_mask(mask)) & numbered]
        if len(named) or mask not in STREAM_OF or topology is None or not topology.is_plain:
            return named
        codes = [code for code, stage in STAGE_BY_CODE.items() if stage.stream is STREAM_OF[mask]]
        unnamed: NDArray[np.void] = self._spans[np.isin(self._spans["stage"], codes) & (peer == NO_PEER) & numbered]
        return unnamed


def _usual(own: NDArray[np.void], seq: int) -> Issued | None:
    """The newest operation that is a whole number of steps before ``seq``."""
    period = _operations_a_step(own)
    if period is None:
        return None
    before = own[(own["op_seq"] < seq) & ((seq - own["op_seq"].astype(np.int64)) % period == 0)]
    return _issued(before[np.argmax(before["op_seq"])]) if len(before) else None


def _operations_a_step(own: NDArray[np.void]) -> int | None:
    """The number of operations in a step; None if unknown. From the two newest steps that another step follows."""
    steps = np.unique(own["step"])
    if len(steps) < 3:
        return None
    earlier, before = steps[-3:-1]
    if before != earlier + 1:
        return None
    last_of = [int(own["op_seq"][own["step"] == step].max()) for step in (earlier, before)]
    return last_of[1] - last_of[0] or None


def _issued(span: np.void) -> Issued:
    return Issued(
        seq=int(span["op_seq"]), stage=STAGE_BY_CODE[int(span["stage"])].label, size_bytes=int(span["size_bytes"])
    )
