"""Verdicts from what ranks printed alone: wordings, prefixes, deaths, and what does not decide."""

import gzip
import io
from pathlib import Path

import pytest

from diagnose.findings import Kind
from diagnose.hang.sources.from_logs import evidence_from_logs
from diagnose.hang.sources.read_logs import read_logs
from diagnose.hang.verdict import HangVerdict, judge
from telemetry.errors import UnreadableError, UsageError

BEHIND = 2
WORLD = 4
PREFIXES = {
    "2.3": "[PG 0 Rank {rank}]",
    "2.4": "[PG 0 (default_pg) Rank {rank}]",
    "2.6": "[PG ID 0 PG GUID 0(default_pg) Rank {rank}]",
}
COUNTS = {
    "2.3": "Timeout at NCCL work: {seq}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.",
    "2.4": "Exception (either an error or timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: "
    "{enqueued}, last completed NCCL work: {completed}.",
    "2.6": " failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last "
    "started work: 8 (ALLREDUCE), last completed work: {completed}",
}
SIGKILL_TABLE = """
E1206 18:31:02.100000 7 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 2
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2024-12-06_18:31:03
  host      : node-1
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 11)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 11
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-12-06_18:31:01
  host      : node-0
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 12)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 12
============================================================
"""


def _timed_out(rank: int, *, op: str = "ALLREDUCE", seq: int = 9, minute: int = 44, head: str = "[rank{rank}]:") -> str:
    """A watchdog's report, in the words of all versions."""
    return (
        f"{head.format(rank=rank)}[E1206 18:{minute}:12.715298746 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=8, NumelOut=8, "
        "Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
    )


def _counted(rank: int, version: str, *, enqueued: int = 10, completed: int = 8, head: str = "[rank{rank}]:") -> str:
    prefix = PREFIXES[version].format(rank=rank)
    counts = COUNTS[version].format(seq=9, enqueued=enqueued, completed=completed)
    return f"{head.format(rank=rank)}[E1206 18:44:12.9 ProcessGroupNCCL.cpp:1785] {prefix} {counts}\n"


def _asked(rank: int, *, completed: int = 8) -> str:
    """The line of a rank that another one asks for its dump."""
    return (
        f"[rank{rank}]:[E1206 18:44:13.1 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        f"Received a dump signal due to a collective timeout from rank 0. Last enqueued NCCL work: {completed}, last "
        f"completed NCCL work: {completed}.This is most likely\n"
    )


def _verdict(text: str) -> HangVerdict:
    return judge(evidence_from_logs(read_logs(["-"], io.BytesIO(text.encode()))))


def _victims(version: str = "2.6", **more: str) -> str:
    ranks = [rank for rank in range(WORLD) if rank != BEHIND]
    return "".join(_timed_out(rank, **more) + _counted(rank, version, **more) for rank in ranks)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", PREFIXES)
def test_the_rank_that_enqueued_less_is_named_and_the_reporting_ranks_are_victims(version: str) -> None:
    verdict = _verdict(_victims(version) + _asked(BEHIND))
    assert verdict.initiating == (BEHIND,)
    assert verdict.kind is Kind.HUNG_COLLECTIVE
    assert "never entered all_reduce #9 of default_pg [0-3]" in verdict.headline


def test_prefixes_of_a_launcher_are_read_too() -> None:
    verdict = _verdict(_victims(head="[default{rank}]:[rank{rank}]:") + "[default2]:" + _asked(BEHIND))
    assert verdict.initiating == (BEHIND,)
    assert _verdict(_victims(head="[default{rank}]:") + "[default2]:" + _asked(BEHIND)).initiating == (BEHIND,)


def test_of_a_rank_without_a_log_nothing_but_that_is_said() -> None:
    verdict = _verdict(_victims())
    assert verdict.initiating == (BEHIND,)
    assert "no evidence of it" in verdict.headline
    assert verdict.confidence < 0.5


def test_old_wordings_without_counts_and_rank_prefixes() -> None:
    verdict = _verdict("".join(_timed_out(rank, head="") for rank in range(WORLD) if rank != BEHIND))
    assert verdict.initiating == (BEHIND,)
    assert verdict.confidence < 0.5


def test_of_two_late_ranks_none_is_named_because_one_may_wait_for_the_other() -> None:
    verdict = _verdict(_timed_out(0) + _counted(0, "2.6") + _asked(1) + _asked(2) + _timed_out(3) + _counted(3, "2.6"))
    assert verdict.initiating == ()
    assert verdict.kind is Kind.INSUFFICIENT_EVIDENCE
    assert "ranks 1-2 may hold them" in verdict.headline
    assert "--stacks" in verdict.next_step


def test_when_all_entered_no_rank_is_named() -> None:
    verdict = _verdict("".join(_timed_out(rank) + _counted(rank, "2.6") for rank in range(WORLD)))
    assert verdict.initiating == ()
    assert "none finished it" in verdict.headline


def test_the_rank_that_issued_something_else_is_named() -> None:
    lines = [_timed_out(rank, op="BROADCAST" if rank == BEHIND else "ALLREDUCE") for rank in range(WORLD)]
    verdict = _verdict("".join(lines) + "".join(_counted(rank, "2.6") for rank in range(WORLD)))
    assert verdict.initiating == (BEHIND,)
    assert verdict.kind is Kind.COLLECTIVE_MISMATCH


def test_the_first_to_be_killed_is_named_and_those_that_the_launcher_ended_are_not() -> None:
    verdict = _verdict(
        "".join(f"[rank{rank}]: Error: Connection closed by peer\n" for rank in (0, 1, 3)) + SIGKILL_TABLE
    )
    assert verdict.initiating == (BEHIND,)
    assert verdict.kind is Kind.DEAD_RANK
    assert "SIGKILL" in verdict.headline
    assert "node-0" in verdict.headline


def test_a_death_after_the_timeouts_is_the_work_of_the_launcher() -> None:
    victims = "".join(_timed_out(rank, minute=20) + _counted(rank, "2.6") for rank in (0, 2, 3))
    verdict = _verdict(victims + _asked(1) + SIGKILL_TABLE)
    assert verdict.initiating == (1,)
    assert verdict.kind is Kind.HUNG_COLLECTIVE


def test_an_exception_that_ended_a_rank_is_its_own_fault_and_a_lost_peer_is_not() -> None:
    own = "[rank2]: Traceback (most recent call last):\n[rank2]: ValueError: a batch of 0 samples\n"
    lost = "".join(
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error: remote process exited\n"
        for rank in (0, 1, 3)
    )
    assert _verdict(lost + own).initiating == (2,)
    assert _verdict(lost).initiating == ()


def test_a_timeout_of_gloo_shows_that_the_rank_waited() -> None:
    text = "[rank{}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 25000ms for recv\n"
    verdict = _verdict(text.format(0) + text.format(2))
    assert verdict.initiating == ()
    assert "ranks 0, 2 wait; rank 1 may hold them" in verdict.headline


def test_a_desync_report_shows_the_place_of_a_silent_rank() -> None:
    report = "   - [2] finished collective #8, but didn't join collective #9 (count from 1)\n"
    verdict = _verdict(_victims() + "[rank2]: iteration 7\n" + report)
    assert verdict.initiating == (BEHIND,)
    assert "never entered" in verdict.headline


def test_ranks_of_two_groups_of_one_name_are_not_compared() -> None:
    def lines(rank: int, place: int, seq: int) -> str:
        prefix = f"[rank{rank}]:[E1206 18:44:12.9 ProcessGroupNCCL.cpp:1785] [PG ID 1 PG GUID 1(mesh_tp) Rank {place}]"
        counts = f"last enqueued NCCL work: {seq}, last completed NCCL work: {seq - 1}."
        return _timed_out(rank, seq=seq) + f"{prefix} Exception detected by watchdog at work: {seq}, {counts}\n"

    verdict = _verdict(lines(0, 0, 9) + lines(1, 1, 9) + lines(2, 0, 12) + lines(3, 1, 12))
    assert verdict.initiating == ()
    assert any("PG 1" in note for note in verdict.evidence.notes)


def test_files_folders_globs_and_gzip_are_read(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "rank_0.log").write_text(_timed_out(0, head="") + _counted(0, "2.6", head=""))
    (tmp_path / "rank_1.log.gz").write_bytes(gzip.compress((_timed_out(1) + _counted(1, "2.6")).encode()))
    (tmp_path / "below" / "rest.txt").write_text(_asked(2) + "50%|#   |\r" + _timed_out(3) + _counted(3, "2.6"))
    for names in ([str(tmp_path)], [str(tmp_path / "rank*"), str(tmp_path / "below" / "rest.txt")]):
        assert judge(evidence_from_logs(read_logs(names))).initiating == (2,)


def test_a_name_without_files_and_a_log_without_ranks_are_errors_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="matches no file"):
        read_logs([str(tmp_path / "*.log")])
    with pytest.raises(UnreadableError, match="name no rank"):
        _verdict("epoch 3, loss 0.1\n")
