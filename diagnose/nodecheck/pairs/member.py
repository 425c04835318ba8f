"""The process of a node in the paired test: ``python -m``, by :func:`.paired_test.run_paired_test` alone."""

from diagnose.nodecheck.answers import Tell, serve
from diagnose.nodecheck.bounded import first_line
from diagnose.nodecheck.network import interface_named
from diagnose.nodecheck.pairs.paired_test import PairedTest
from diagnose.nodecheck.rendezvous import find_address
from telemetry.errors import UsageError


def work(test: PairedTest, tell: Tell) -> None:
    """Raises:
    UsageError: torch is missing, there is no such interface, or the endpoint is not node 0's.
    """
    if test.rendezvous.interface:
        interface_named(test.rendezvous.interface)
    if test.rendezvous.index == 0:
        find_address(test.rendezvous)
    try:
        from diagnose.nodecheck.pairs.rounds import take_part  # noqa: PLC0415 - torch is an optional extra
    except ImportError as error:
        reason = f"the paired test needs torch ({first_line(error)})"
        raise UsageError(reason, hint="pip install 'rankscope[train]'") from error
    take_part(test, tell)


if __name__ == "__main__":
    serve(work)
