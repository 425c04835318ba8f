"""TCP between two addresses of this host, a process at each.

Traffic between two local addresses stays in the kernel unless routing says otherwise (namespaces, policy routes): it
shows wrong routes and firewalls, and a wire only where one is passed.
"""

from diagnose.nodecheck.checks.tcp_stream import StreamError, stream
from diagnose.nodecheck.network import Interface
from diagnose.nodecheck.result import CheckResult, failed, measured

CHECK = "nic-pair"


def run(*, source: Interface, target: Interface, measure_s: float) -> CheckResult:
    """GB/s of a stream from one to the other, after messages of several sizes came back unchanged."""
    subject = f"{source.name} -> {target.name}"
    try:
        samples = stream(source.address, target.address, measure_s)
    except (StreamError, OSError) as error:
        return failed(CHECK, subject, str(error))
    alike = f"{source.speed_mbps} -> {target.speed_mbps} Mbit/s" if source.speed_mbps and target.speed_mbps else ""
    return measured(CHECK, subject, "nic_pair_gb_s", samples, alike=alike)
