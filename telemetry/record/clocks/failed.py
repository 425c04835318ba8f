"""What stands in for a device clock that was given up."""

from typing import Any

from telemetry.record.clocks.interface import DeviceSpan, Drained


class FailedClock:
    """Refuses every span. Implements ``DeviceClock``."""

    def begin(self) -> None:
        return None

    def end(self, ticket: Any, span: DeviceSpan) -> None:
        raise RuntimeError("the clock in which this span began has failed")

    def drain(self) -> list[Drained]:
        return []

    def pending(self) -> int:
        return 0
