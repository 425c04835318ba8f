"""Bytes alone, many times a second: windows of ten milliseconds show what an average over a second hides.

Reads the byte counters of every interface and RDMA port and nothing else: no links, no errors, no events. Stands beside
the samplers that read those, with the same metrics; links and devices that come and go are theirs to tell.
"""

from pathlib import Path

from telemetry.agent.samplers.interface import GoneError, Look, Reading
from telemetry.agent.samplers.interfaces import InterfaceChoice
from telemetry.agent.samplers.kept_files import Descriptors, KeptFile
from telemetry.agent.samplers.rdma import DATA_FILES, WORD_BYTES, ports
from telemetry.host_metrics import Metric

RESCAN_EVERY = 3000
_NIC_FILES = ((Metric.NIC_RECEIVE_BYTES, "rx_bytes"), (Metric.NIC_SEND_BYTES, "tx_bytes"))


class TrafficSampler:
    """Byte counters of NICs and RDMA ports, for looks in quick succession."""

    name = "traffic"

    def __init__(
        self,
        sysfs: Path,
        *,
        choice: InterfaceChoice | None = None,
        descriptors: Descriptors | None = None,
        rescan_every: int = RESCAN_EVERY,
    ) -> None:
        self._net = sysfs / "class" / "net"
        self._infiniband = sysfs / "class" / "infiniband"
        self._choice = choice or InterfaceChoice()
        self._descriptors = descriptors or Descriptors()
        self._rescan_every = rescan_every
        self._num_looks = 0
        self._files: dict[tuple[str, str], tuple[KeptFile, int]] = {}
        """By metric and device; with bytes for each unit."""
        self._rescan()

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(device for _, device in self._files))

    def look(self, at_ns: int) -> Look:
        self._num_looks += 1
        if self._num_looks % self._rescan_every == 0:
            self._rescan()
            if not self._files and not self._net.is_dir() and not self._infiniband.is_dir():
                raise GoneError(f"{self._net} is gone")
        return Look(
            readings=tuple(
                Reading(metric=metric, device=device, value=float(number * unit_bytes), is_counter=True)
                for (metric, device), (file, unit_bytes) in self._files.items()
                if (number := file.number()) is not None
            )
        )

    def close(self) -> None:
        for file, _ in self._files.values():
            file.close()
        self._files.clear()

    def _rescan(self) -> None:
        """Open everything anew: a name may stand for another interface than before."""
        self.close()
        for name in self._choice.found(self._net):
            for metric, file in _NIC_FILES:
                self._add(metric, name, self._net / name / "statistics" / file, 1)
        for port in ports(self._infiniband):
            for file in DATA_FILES:
                self._add(
                    f"rdma-{file}", f"{port.parent.parent.name}/{port.name}", port / "counters" / file, WORD_BYTES
                )

    def _add(self, metric: str, device: str, path: Path, unit_bytes: int) -> None:
        if path.is_file():
            self._files[metric, device] = KeptFile(path, self._descriptors), unit_bytes
