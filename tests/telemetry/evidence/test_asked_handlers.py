"""Which flight recorders are requested from a rank. NCCL's is requested only if the rank makes no progress."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import telemetry
from telemetry.agent.settings import StallSettings
from telemetry.agent.stall import SECOND_NS
from telemetry.agent.watch import EvidenceWatch
from telemetry.evidence import collect
from telemetry.evidence.evidence import kept, kept_state
from telemetry.evidence.flight_recorder import GLOO, NCCL
from telemetry.record import worker_server
from telemetry.record.collectives.operations import Operations
from telemetry.record.reader import RankReader
from telemetry.record.recording import RECORDER
from telemetry.topology import Topology
from tests.deadline import until
from tests.telemetry.worker_socket import Answer, serve_handlers

PEER = """
import sys, time, telemetry
telemetry.start("run", topology=telemetry.Topology(dp=2), rank=1, attempt=0, spool=sys.argv[1], agent=False)
with telemetry.step(0):
    time.sleep(600)
"""
DUMP = b'{"entries": [], "pg_status": {"0": {}}}'


class AskedRank:
    """This process as rank 0 of two. ``asked``: the recorders that were requested from it."""

    def __init__(self, spool: Path, socket: Path) -> None:
        self.asked: list[str] = []
        self.end = serve_handlers(socket, {name: self._answer_of(name) for name in (GLOO, NCCL)})
        session = telemetry.start(
            "run", topology=Topology(dp=2), rank=0, attempt=0, spool=spool, agent=False,
            meta={worker_server.META_KEY: str(socket)},
        )  # fmt: skip
        assert session.folder is not None
        self.folder = session.folder

    def _answer_of(self, name: str) -> Answer:
        def answer() -> bytes:
            self.asked.append(name)
            return DUMP

        return answer


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskedRank]:
    monkeypatch.setattr(worker_server, "MAX_SERVERS", 0)
    rank = AskedRank(tmp_path / "spool", tmp_path / "socket")
    yield rank
    telemetry.stop()
    rank.end()


@pytest.mark.parametrize("stamp_is_late", [False, True])
def test_peers_of_a_dead_rank_are_asked_for_the_gloo_recorder_and_for_nccl_only_in_the_stall(
    rank: AskedRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp_is_late: bool
) -> None:
    """Also if the time of death is known only after the check that found the dead process."""
    now_s = 0.0

    def now() -> int:
        return RankReader(rank.folder).live().step_started_ns + round(now_s * SECOND_NS)

    watch = EvidenceWatch(tmp_path / "spool", settings=StallSettings(floor_s=10, ceiling_s=20), clock=now)
    peer = subprocess.Popen([sys.executable, "-c", PEER, str(tmp_path / "spool")])
    try:
        with telemetry.step(0):
            until(lambda: stepping(rank.folder.with_name("rank-00001")), seconds=60, what="the peer records")
            watch.check()
            peer.send_signal(signal.SIGKILL)
            peer.wait()
            with monkeypatch.context() as patch:
                if stamp_is_late:
                    patch.setattr(watch._deaths, "died_ns", lambda pid: 0)
                watch.check()
            assert rank.asked == [GLOO]
            until(lambda: watch._deaths.died_ns(peer.pid), seconds=60, what="the end is stamped")
            for _ in range(25):
                now_s += 1.0
                watch.check()
            assert sorted(rank.asked) == sorted([GLOO, GLOO, NCCL])
            assert kept_state(kept(rank.folder.with_name("rank-00001"), 1)).died_ns == watch._deaths.died_ns(peer.pid)
    finally:
        peer.kill()
        peer.wait()
        watch.close()


def stepping(folder: Path) -> bool:
    return (folder / "meta.json").exists() and RankReader(folder).live().step == 0


@pytest.mark.parametrize("waits", [False, True])
def test_nccl_recorder_is_read_without_an_agent_only_if_the_rank_waits_for_an_operation(
    rank: AskedRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """A long step without an operation may compile or capture a graph."""
    monkeypatch.setattr(collect, "STILL_NS", 0)
    operations = Operations(RECORDER)
    with telemetry.step(0):
        if waits:
            operations.issue(operations.line((0, 1), 1), None, 8)
        collect.collect_evidence(tmp_path / "spool", "run", 0)
    assert (NCCL in rank.asked) is waits
    assert GLOO in rank.asked
