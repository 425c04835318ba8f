"""Fixtures of the scenarios."""

from pathlib import Path

import pytest

import telemetry
from telemetry import Stage, span, step


@pytest.fixture
def spool_of_a_run(tmp_path: Path) -> Path:
    """Rank files of one small run of two ranks, recorded by the real recorder."""
    spool = tmp_path / "spool"
    for rank in range(2):
        telemetry.start("small", topology=telemetry.Topology(dp=2), rank=rank, attempt=0, spool=spool, agent=False)
        for number in range(10):
            with step(number):
                for microbatch in range(4):
                    with span(Stage.FORWARD_COMPUTE, microbatch=microbatch):
                        pass
        telemetry.stop()
    return spool
