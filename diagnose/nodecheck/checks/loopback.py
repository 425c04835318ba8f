"""TCP from an interface's address to itself.

The kernel keeps such traffic to itself: this measures the host's network stack and its processors, not the wire.
"""

from diagnose.nodecheck.checks.tcp_stream import StreamError, stream
from diagnose.nodecheck.network import Interface
from diagnose.nodecheck.result import CheckResult, failed, measured

CHECK = "loopback"


def run(*, interface: Interface, measure_s: float) -> CheckResult:
    """GB/s of a stream, after messages of several sizes came back unchanged."""
    subject = f"{interface.name} {interface.address}"
    try:
        samples = stream(interface.address, interface.address, measure_s)
    except (StreamError, OSError) as error:
        return failed(CHECK, subject, str(error))
    alike = f"{interface.speed_mbps} Mbit/s" if interface.speed_mbps else ""
    return measured(CHECK, subject, "loopback_gb_s", samples, alike=alike)
