"""Segments that TCP sent again, of all connections of the host together.

    /proc/net/snmp   Tcp: RtoAlgorithm ... RetransSegs InErrs ...
                     Tcp: 1 ... 42 0 ...

The numbers are those of the network namespace of this process.
"""

from pathlib import Path

from telemetry.agent.samplers.interface import Look, Reading
from telemetry.agent.samplers.kept_files import Descriptors, KeptFile
from telemetry.host_metrics import Metric

_NAME = b"RetransSegs"


class TcpSampler:
    """Of the host: the device is empty."""

    name = "tcp"

    def __init__(self, proc: Path, *, descriptors: Descriptors | None = None) -> None:
        self._file = KeptFile(proc / "net" / "snmp", descriptors or Descriptors())

    def look(self, at_ns: int) -> Look:
        retransmits = self.retransmits()
        if retransmits is None:
            return Look()
        reading = Reading(metric=Metric.TCP_RETRANSMITS, device="", value=float(retransmits), is_counter=True)
        return Look(readings=(reading,))

    def close(self) -> None:
        self._file.close()

    def retransmits(self) -> int | None:
        """None where the kernel does not say, or not now."""
        try:
            return _retransmits(self._file.read())
        except (OSError, ValueError):
            return None


def _retransmits(table: bytes) -> int | None:
    """Raises:
    ValueError: what stands there is no number.
    """
    rows = [line.split() for line in table.splitlines() if line.startswith(b"Tcp:")]
    if len(rows) != 2 or _NAME not in rows[0]:
        return None
    column = rows[0].index(_NAME)
    return int(rows[1][column]) if column < len(rows[1]) else None
