"""A rank whose CUDA clock uses a twin of CUDA (``manual_cuda``), in manual time or in a session."""

import pytest

from telemetry.record.clocks.cuda import CudaClock
from telemetry.record.clocks.interface import DeviceSpan, Drained, ResolvedSpan
from telemetry.stages import Stage
from tests.telemetry.record.clocks.manual_cuda import ManualCuda

MS = 1_000_000
NOTE = DeviceSpan(stage=Stage.FORWARD_COMPUTE, issue_ns=5, step=3, microbatch=2)


class ManualTime:
    """The host's clock, moved by hand and by pauses."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.pauses: list[float] = []

    def now(self) -> int:
        self.now_ns += 100
        return self.now_ns

    def pause(self, for_s: float) -> None:
        self.pauses.append(for_s)
        self.now_ns += max(2_000, round(for_s * 1e9))


class Rank:
    """A CUDA clock and a twin of CUDA, both in manual time."""

    def __init__(self, **options: object) -> None:
        self.time = ManualTime()
        self.cuda = ManualCuda(now=self.time.now, **options)  # type: ignore[arg-type]
        self.clock = CudaClock(self.cuda, now=self.time.now, pause=self.time.pause)

    def work(self, for_ns: int, span: DeviceSpan = NOTE) -> None:
        """Issue a span with ``for_ns`` of work."""
        ticket = self.clock.begin()
        self.cuda.keep_busy(for_ns)
        if ticket is not None:
            self.clock.end(ticket, span)

    def drain(self, *, after_ns: int = 0) -> list[Drained]:
        self.time.now_ns += after_ns
        return self.clock.drain()


def resolved(drained: list[Drained]) -> list[ResolvedSpan]:
    return [one for one in drained if isinstance(one, ResolvedSpan)]


def use_in_sessions(twin: ManualCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sessions of this test use ``twin`` as CUDA."""
    clock = CudaClock(twin)
    monkeypatch.setattr(
        "telemetry.record.clocks.drain.open_device_clock", lambda device: clock if clock.is_used() else None
    )
    monkeypatch.setattr("telemetry.record.clocks.drain.expects_device", lambda device: True)


def time_a_span(clock: CudaClock, span: DeviceSpan = NOTE) -> None:
    """Issue a span without work on the current stream."""
    ticket = clock.begin()
    assert ticket is not None
    clock.end(ticket, span)
