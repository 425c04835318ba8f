"""RDMA ports: every counter that the driver offers, state and rate.

    /sys/class/infiniband/mlx5_0/ports/1/ state  rate  phys_state
                                          counters/     port_xmit_data ... link_downed     (InfiniBand's own names)
                                          hw_counters/  out_of_sequence ... lifespan       (the driver's names)

A metric is ``rdma-`` and the name of the file. If both folders have a file of that name, the file in ``counters`` is
used. ``port_xmit_data`` and ``port_rcv_data`` are reported in bytes: the files hold units of four bytes. ``lifespan``
is not a counter, but the largest age of the other values.

State and ``link_downed`` are read in every sample. The other files are read until ``BUDGET_NS`` is used up, and the
next sample continues there: some drivers query their firmware for every file, and eight ports have hundreds.

A port is up while it is ACTIVE. ``link_downed`` may lag behind the state or not count at all (RoCE). So each loss is
reported once, from whichever of the two shows it first.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from telemetry.agent.samplers.interface import Event, GoneError, Reading, Sample, WrappingCounter, counter, level
from telemetry.agent.samplers.kept_files import Descriptors, KeptFile, names_in
from telemetry.agent.samplers.link_events import LinkLedger, LinkState
from telemetry.host_metrics import Happening, Metric

RESCAN_EVERY = 30
BUDGET_NS = 800_000
WORD_BYTES = 4
DATA_FILES = ("port_xmit_data", "port_rcv_data")
_NO_COUNTERS = frozenset({"lifespan"})
_ACTIVE = frozenset({"4", "5"})
"""ACTIVE and ACTIVE_DEFER: the number before the colon."""


class RdmaSampler:
    """The ports of a host. ``clock`` gives monotonic nanoseconds."""

    name = "rdma"

    def __init__(
        self,
        sysfs: Path,
        *,
        descriptors: Descriptors | None = None,
        rescan_every: int = RESCAN_EVERY,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._root = sysfs / "class" / "infiniband"
        self._descriptors = descriptors or Descriptors()
        self._rescan_every = rescan_every
        self._clock = clock
        self._num_samples = 0
        self._next = 0
        self._ports: dict[str, _Port] = {}
        self._counters: list[_Counter] = []
        self._rescan(0)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self._ports)

    def sample(self, at_ns: int) -> Sample:
        began_ns = self._clock()
        self._num_samples += 1
        is_time = self._num_samples % self._rescan_every == 0
        events = self._rescan(at_ns) if is_time or any(port.is_lost for port in self._ports.values()) else []
        readings: list[Reading] = []
        for port in self._ports.values():
            events += port.sample(at_ns)
            readings += port.readings()
        readings += self._read_counters(began_ns + BUDGET_NS)
        if not self._ports and not self._root.is_dir():
            raise GoneError(f"{self._root} is gone")
        return Sample(readings=tuple(readings), events=tuple(events))

    def close(self) -> None:
        for port in self._ports.values():
            port.close()
        self._ports.clear()
        self._counters.clear()

    def _read_counters(self, until_ns: int) -> Iterator[Reading]:
        """Continue where the previous sample stopped. Reads each counter at most once, and at least 15 counters."""
        for num_read in range(len(self._counters)):
            if num_read % 16 == 15 and self._clock() > until_ns:
                return
            reading = self._counters[self._next].reading()
            self._next = (self._next + 1) % len(self._counters)
            if reading is not None:
                yield reading

    def _rescan(self, at_ns: int) -> list[Event]:
        found = {f"{folder.parent.parent.name}/{folder.name}": folder for folder in ports(self._root)}
        gone = sorted(self._ports.keys() - found.keys())
        for name in gone:
            self._ports.pop(name).close()
        for port in self._ports.values():
            port.try_again()
        for name, folder in found.items():
            if name not in self._ports:
                self._ports[name] = _Port(name, folder, self._descriptors)
        self._counters = [item for port in self._ports.values() for item in port.counters]
        self._next = self._next % len(self._counters) if self._counters else 0
        text = "the port no longer exists"
        return [Event(at_ns=at_ns, device=name, name=Happening.DEVICE_GONE, text=text) for name in gone]


class _Port:
    def __init__(self, device: str, folder: Path, descriptors: Descriptors) -> None:
        self._device = device
        self._ledger = LinkLedger(device)
        self._state = KeptFile(folder / "state", descriptors)
        self._phys_state = KeptFile(folder / "phys_state", Descriptors(0))
        self._rate = KeptFile(folder / "rate", Descriptors(0))
        self._rate_gbps: float | None = None
        self._wants_rate = True
        self._is_up: bool | None = None
        self.is_lost = False
        """Whether its state was readable and no longer is: the port may be removed."""
        self.counters: list[_Counter] = []
        for kind in ("counters", "hw_counters"):
            known = {item.file_name for item in self.counters} | _NO_COUNTERS
            for name in sorted(set(names_in(folder / kind)) - known):
                file = KeptFile(folder / kind / name, descriptors)
                self.counters.append(_Counter(device, name, file, wraps=kind == "hw_counters"))
        self._downed = next((item for item in self.counters if item.file_name == "link_downed"), None)

    def sample(self, at_ns: int) -> list[Event]:
        state = self._state.text()
        number, _, name = state.partition(":")
        if not number.strip().isdigit():
            self.is_lost = self._is_up is not None
            self._is_up = None
            return []
        self.is_lost = False
        is_up = number.strip() in _ACTIVE
        self._wants_rate |= is_up is not self._is_up
        downs = None if self._downed is None else self._downed.file.number()
        why = f"port {name.strip()}"
        if is_up is not self._is_up and (physical := self._phys_state.text().partition(":")[2].strip()):
            why += f", {physical}"
        self._is_up = is_up
        return self._ledger.observe(at_ns, LinkState.UP if is_up else LinkState.DOWN, downs, why)

    def readings(self) -> Iterator[Reading]:
        if self._is_up is None:
            return
        yield level(Metric.RDMA_UP, self._is_up, self._device)
        if (rate := self._current_rate()) is not None:
            yield level(Metric.RDMA_RATE_GBPS, rate, self._device)

    def try_again(self) -> None:
        self._wants_rate = True
        for item in self.counters:
            item.file.try_again()

    def close(self) -> None:
        self._state.close()
        for item in self.counters:
            item.file.close()

    def _current_rate(self) -> float | None:
        """``400 Gb/sec (4X NDR)`` as 400; None if the port is down."""
        if self._wants_rate:
            self._wants_rate = False
            self._rate_gbps = None
            with suppress(ValueError):
                rate = float(self._rate.text().partition(" ")[0])
                self._rate_gbps = rate if self._is_up and 0 < rate < math.inf else None
        return self._rate_gbps


class _Counter:
    __slots__ = ("_device", "_metric", "_number", "_reading", "_unit", "_wrapping", "file", "file_name")

    def __init__(self, device: str, file_name: str, file: KeptFile, *, wraps: bool) -> None:
        self._device = device
        self._metric = f"rdma-{file_name}"
        self._unit = WORD_BYTES if file_name in DATA_FILES else 1
        self._wrapping = WrappingCounter() if wraps else None
        self._number = -1
        self._reading: Reading | None = None
        self.file = file
        self.file_name = file_name

    def reading(self) -> Reading | None:
        number = self.file.number()
        if number is None or number < 0:
            return None
        if number != self._number:  # most counters do not change
            self._number = number
            value = number if self._wrapping is None else self._wrapping.unwrapped(number)
            self._reading = counter(self._metric, value * self._unit, self._device)
        return self._reading


def ports(root: Path) -> list[Path]:
    """Folders of the ports under ``<sysfs>/class/infiniband``."""
    return [
        root / device / "ports" / port
        for device in sorted(names_in(root))
        for port in sorted(names_in(root / device / "ports"))
        if port.isdigit()
    ]
