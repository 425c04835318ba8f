"""Which device clock a session gets. torch is imported here, and only for a device that needs it."""

from telemetry.clocks.interface import DeviceClock


def open_device_clock(device: str) -> DeviceClock | None:
    """None on a CPU: the host's clock is the device's.

    Raises:
        UsageError: torch sees no such device.
        ImportError: torch is not installed.
    """
    if device == "cpu":
        return None
    from telemetry.clocks.cuda import open_cuda_clock  # noqa: PLC0415  (optional extra)

    return open_cuda_clock()
