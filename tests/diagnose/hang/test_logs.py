"""Verdicts from logs alone: wordings, prefixes, deaths, and logs that do not decide."""

import gzip
import io
from pathlib import Path

import pytest

from diagnose.findings import Kind
from diagnose.hang.sources.from_logs import evidence_from_logs
from diagnose.hang.sources.read_logs import read_logs
from diagnose.hang.verdict import HangVerdict, judge
from telemetry.errors import UnreadableError, UsageError
from tests.each_case import each_case

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
    """The timeout line of a watchdog. All versions use these words."""
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
    """The line of a rank that another rank asks for its dump."""
    return (
        f"[rank{rank}]:[E1206 18:44:13.1 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        f"Received a dump signal due to a collective timeout from rank 0. Last enqueued NCCL work: {completed}, last "
        f"completed NCCL work: {completed}.This is most likely\n"
    )


def _verdict(text: str, num_ranks: int = WORLD) -> HangVerdict:
    return judge(evidence_from_logs(read_logs(["-"], io.BytesIO(text.encode())), num_ranks))


def _victims(version: str = "2.6", **more: str) -> str:
    ranks = [rank for rank in range(WORLD) if rank != BEHIND]
    return "".join(_timed_out(rank, **more) + _counted(rank, version, **more) for rank in ranks)  # type: ignore[arg-type]


@each_case("version", PREFIXES)
def test_rank_that_enqueued_fewer_operations_is_named_and_ranks_that_timed_out_are_not(version: str) -> None:
    verdict = _verdict(_victims(version) + _asked(BEHIND))
    assert verdict.initiating == (BEHIND,)
    assert verdict.kind is Kind.HUNG_COLLECTIVE
    assert "never entered all_reduce #9 of default_pg [0-3]" in verdict.headline


def test_log_lines_with_prefixes_of_a_launcher_are_read() -> None:
    verdict = _verdict(_victims(head="[default{rank}]:[rank{rank}]:") + "[default2]:" + _asked(BEHIND))
    assert verdict.initiating == (BEHIND,)
    assert _verdict(_victims(head="[default{rank}]:") + "[default2]:" + _asked(BEHIND)).initiating == (BEHIND,)


IN_GROUP = "[rank2]:[I1206 10:00:00.1 ProcessGroupNCCL.cpp:900] [PG ID 0 PG GUID 0(default_pg) Rank 2] "


@each_case(
    "silent",
    [
        "",
        "[rank2]: iteration 7\n",
        _timed_out(2)[:90] + "\n",
        f"{IN_GROUP}Observed flight recorder dump signal from another rank via TCPStore.\n",
    ],
)
def test_rank_without_a_report_in_the_log_is_not_named(silent: str) -> None:
    """The rank may have been ended before it could report."""
    verdict = _verdict(_victims() + silent)
    assert verdict.initiating == ()
    assert "rank 2 may block them" in verdict.headline


def test_rank_is_not_named_when_the_world_size_is_unknown_or_other_ranks_are_missing() -> None:
    text = _victims() + _asked(BEHIND)
    verdict = _verdict(text, num_ranks=0)
    assert verdict.initiating == ()
    assert "rank 2 and other ranks that left no evidence may block them" in verdict.headline
    assert "--world-size" in verdict.next_step
    assert _verdict(text, num_ranks=8).initiating == ()
    options = "ProcessGroupNCCL initialization options: size: 4, global rank: 2, TIMEOUT(ms): 600000\n"
    for shown in ("world_size=4\n", IN_GROUP + options):
        assert _verdict(shown + text, num_ranks=0).initiating == (BEHIND,)


@pytest.mark.parametrize("line", ["tensor parallel world size: 4", "x NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0"])
def test_size_of_a_group_in_the_log_is_not_used_as_the_world_size(line: str) -> None:
    assert _verdict(f"{line}\n" + _victims() + _asked(BEHIND), num_ranks=0).initiating == ()


def test_no_rank_is_named_when_a_communicator_is_larger_than_the_stated_world_size() -> None:
    sizes = "world_size=4\nx NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0\n"
    assert _verdict(sizes + _victims() + _asked(BEHIND), num_ranks=0).initiating == ()


def test_world_size_smaller_than_a_rank_in_the_log_raises_a_usage_error() -> None:
    with pytest.raises(UsageError, match="names rank 3"):
        _verdict(_victims(), num_ranks=2)


def test_no_rank_is_named_when_old_log_lines_lack_counts_and_rank_prefixes() -> None:
    verdict = _verdict("".join(_timed_out(rank, head="") for rank in range(WORLD) if rank != BEHIND))
    assert verdict.initiating == ()
    assert verdict.kind is Kind.INSUFFICIENT_EVIDENCE
    assert "ranks 0-1, 3 wait; rank 2 may block them" in verdict.headline


def test_timeout_without_a_group_is_not_assumed_to_be_in_the_group_of_all_ranks() -> None:
    """Rank 1 is in the group of rank 4, but the second log line of rank 1 is lost."""
    verdict = _verdict(_timed_out(1) + _in_tp(4, place=4), num_ranks=8)
    assert not verdict.waits
    assert "ranks 1, 4 wait; ranks 0, 2-3, 5-7 may block them" in verdict.headline


def test_no_rank_is_named_when_two_ranks_are_late() -> None:
    """One of them may wait for the other."""
    verdict = _verdict(_timed_out(0) + _counted(0, "2.6") + _asked(1) + _asked(2) + _timed_out(3) + _counted(3, "2.6"))
    assert verdict.initiating == ()
    assert verdict.kind is Kind.INSUFFICIENT_EVIDENCE
    assert "ranks 1-2 may block them" in verdict.headline
    assert "--stacks" in verdict.next_step


def test_no_rank_is_named_when_all_ranks_entered_the_operation() -> None:
    verdict = _verdict("".join(_timed_out(rank) + _counted(rank, "2.6") for rank in range(WORLD)))
    assert verdict.initiating == ()
    assert "none finished it" in verdict.headline
    others = _verdict("".join(_timed_out(rank) + _counted(rank, "2.6") for rank in range(WORLD)), num_ranks=0)
    assert "other ranks that left no evidence may block them" in others.headline


def test_headline_says_that_all_ranks_wait_when_they_wait_in_several_operations() -> None:
    text = "".join(_timed_out(rank) + _counted(rank, "2.6") for rank in range(3))
    verdict = _verdict(text + _in_tp(3, place=1) + _timed_out(3) + _counted(3, "2.6"))
    assert verdict.headline.endswith("all ranks of the job wait")


def test_rank_that_issued_a_different_collective_is_named() -> None:
    lines = [_timed_out(rank, op="BROADCAST" if rank == BEHIND else "ALLREDUCE") for rank in range(WORLD)]
    verdict = _verdict("".join(lines) + "".join(_counted(rank, "2.6") for rank in range(WORLD)))
    assert verdict.initiating == (BEHIND,)
    assert verdict.kind is Kind.COLLECTIVE_MISMATCH


def test_first_killed_rank_is_named_and_ranks_that_the_launcher_ended_are_not() -> None:
    verdict = _verdict(
        "".join(f"[rank{rank}]: Error: Connection closed by peer\n" for rank in (0, 1, 3)) + SIGKILL_TABLE
    )
    assert verdict.initiating == (BEHIND,)
    assert verdict.kind is Kind.DEAD_RANK
    assert "SIGKILL" in verdict.headline
    assert "node-0" in verdict.headline


def test_rank_killed_after_the_timeouts_is_not_named() -> None:
    victims = "".join(_timed_out(rank) + _counted(rank, "2.6") for rank in (0, 2, 3))
    verdict = _verdict((victims + _asked(1)).replace("18:44", "18:20") + SIGKILL_TABLE)
    assert verdict.initiating == (1,)
    assert verdict.kind is Kind.HUNG_COLLECTIVE


def test_rank_with_its_own_exception_is_named_and_ranks_that_lost_a_peer_are_not() -> None:
    own = "[rank2]: Traceback (most recent call last):\n[rank2]: ValueError: a batch of 0 samples\n"
    lost = "".join(
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error: remote process exited\n"
        for rank in (0, 1, 3)
    )
    assert _verdict(lost + own).initiating == (2,)
    assert _verdict(lost).initiating == ()


@each_case(
    "error",
    [
        "torch.distributed.DistBackendError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
        "via c10d key-value store by key '0', but store->get('0') got error: failed to recv, got 0 bytes",
        "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv",
        "RuntimeError: [Rank 2]: Ranks 1 failed to pass monitoredBarrier in 1800000 ms",
        "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Terminated. ",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/buffer.cc:72] Application timeout caused pair "
        "closure",
    ],
)
def test_rank_is_not_named_for_an_error_that_a_peer_or_the_launcher_causes(error: str) -> None:
    others = "".join(f"[rank{rank}]: iteration 7\n" for rank in (0, 1, 3))
    assert _verdict(f"{others}[rank2]: Traceback (most recent call last):\n[rank2]: {error}\n").initiating == ()


def test_healthy_log_that_contains_words_of_a_fault_names_no_rank() -> None:
    verdict = _verdict(
        "[rank0]: iteration 1, the watchdog timeout is 600000, last enqueued nothing\n"
        "[rank2]: handled: CUDA out of memory, retry\n[rank2]: Traceback (most recent call last):\n"
    )
    assert verdict.initiating == ()


def test_dead_rank_is_not_named_when_its_death_may_be_later_than_the_timeouts() -> None:
    unstamped = [line.replace("1206 18:44:12.715298746 ", "") for line in map(_timed_out, (0, 1, 3))]
    assert _verdict("".join(unstamped) + SIGKILL_TABLE).initiating == ()
    shortly_after = "".join(_timed_out(rank, minute=31) for rank in (0, 1, 3))  # 11 s after the death, another clock
    assert _verdict(shortly_after + SIGKILL_TABLE).initiating == ()


def test_interleaved_rows_of_two_failure_tables_are_not_used() -> None:
    other = SIGKILL_TABLE.replace("node-0", "node-9").replace(": 2 (local", ": 3 (local").replace("-9 (pid", "1 (pid")
    mixed = [row for rows in zip(SIGKILL_TABLE.splitlines(), other.splitlines(), strict=True) for row in rows]
    assert _verdict("\n".join(["[rank0]: iteration 7", *mixed])).initiating == ()


def test_gloo_timeout_shows_that_the_rank_waits() -> None:
    text = "[rank{}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 25000ms for recv\n"
    verdict = _verdict(text.format(0) + text.format(2))
    assert verdict.initiating == ()
    assert "ranks 0, 2 wait; ranks 1, 3 may block them" in verdict.headline


def test_desync_report_names_a_silent_rank_unless_its_group_is_ambiguous() -> None:
    report = "   - [2] finished collective #8, but didn't join collective #9 (count from 1)\n"
    verdict = _verdict(_victims() + "[rank2]: iteration 7\n" + report)
    assert verdict.initiating == (BEHIND,)
    assert "never entered" in verdict.headline
    in_tp = _in_tp(0, place=0)  # the report may be about this group
    assert _verdict(_victims() + "[rank2]: iteration 7\n" + in_tp + report).initiating == ()


def _in_tp(rank: int, place: int, seq: int = 9) -> str:
    """A timeout in a tp group, by default with the sequence number of the timeouts in the default group."""
    work = _timed_out(rank, op="_ALLGATHER_BASE", seq=seq)
    group = f"[rank{rank}]:[E1206 18:44:12.9 ProcessGroupNCCL.cpp:1785] [PG ID 5 PG GUID 5(mesh_tp) Rank {place}]"
    return work + f"{group} {COUNTS['2.6'].format(seq=seq, enqueued=seq, completed=seq - 1)}\n"


def test_operations_with_the_same_number_in_two_groups_are_not_confused() -> None:
    tp_work, tp_group = _in_tp(3, place=1).splitlines(keepends=True)
    for lines in ((tp_work, _timed_out(3), _counted(3, "2.6"), tp_group), (tp_work, tp_group, _timed_out(3))):
        verdict = _verdict("".join(_timed_out(rank) + _counted(rank, "2.6") for rank in range(3)) + "".join(lines))
        assert verdict.initiating == ()
        assert verdict.kind is not Kind.COLLECTIVE_MISMATCH


def test_line_with_operation_and_group_is_preferred_to_two_lines_with_one_each() -> None:
    tp_work = _in_tp(3, place=1).splitlines(keepends=True)[0]
    last = _timed_out(3).replace("[Rank 3] Watch", f"{PREFIXES['2.6'].format(rank=3)} Terminated: [Rank 3] Watch")
    text = "".join(_timed_out(rank) + _counted(rank, "2.6") for rank in range(3))
    verdict = _verdict(text + tp_work + _counted(3, "2.6") + last)
    assert verdict.kind is Kind.HUNG_COLLECTIVE
    assert "none finished it" in verdict.headline


def test_no_rank_is_named_for_a_mismatch_when_the_group_may_have_unseen_ranks() -> None:
    lines = [_timed_out(rank, op="BROADCAST" if rank == BEHIND else "ALLREDUCE") for rank in range(WORLD)]
    text = "".join(lines) + "".join(_counted(rank, "2.6") for rank in range(WORLD))
    for num_ranks in (8, 0):
        verdict = _verdict(text, num_ranks)
        assert verdict.initiating == ()
        assert verdict.kind is Kind.COLLECTIVE_MISMATCH


def test_sequence_numbers_that_differ_because_of_transfers_are_not_compared() -> None:
    def lines(rank: int, seq: int) -> str:
        counts = COUNTS["2.6"].format(seq=seq, enqueued=seq + 1, completed=seq - 1)
        return _timed_out(rank, seq=seq) + f"[rank{rank}]:{PREFIXES['2.6'].format(rank=rank)} {counts}\n"

    assert _verdict(lines(0, 720) + lines(1, 720) + lines(2, 720) + lines(3, 701)).initiating == ()


def test_completed_count_above_the_enqueued_count_is_ignored() -> None:
    """torch 2.3 prints such a number if no operation has completed."""
    completed = [3452013982, -1, -1, -1]
    text = "".join(
        _timed_out(rank, seq=1) + _counted(rank, "2.3", enqueued=1, completed=completed[rank]) for rank in range(WORLD)
    )
    verdict = _verdict(text.replace("work: 9", "work: 1"))
    assert verdict.initiating == ()
    assert "none finished it" in verdict.headline


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_log_with_two_attempts_names_no_rank(is_reversed: bool) -> None:
    def attempt(behind: int, seq: int, hour: int) -> str:
        text = "".join(
            _timed_out(rank, seq=seq)
            + f"[rank{rank}]:[E1206 18:44:12.9 x] {PREFIXES['2.6'].format(rank=rank)} "
            + COUNTS["2.6"].format(seq=seq, enqueued=seq, completed=seq - 1)
            + "\n"
            for rank in range(WORLD)
            if rank != behind
        )
        return (text + _asked(behind, completed=seq - 1)).replace("18:44", f"{hour}:44")

    attempts = [attempt(1, 7219, 10), attempt(3, 101, 18)]
    verdict = _verdict("".join(reversed(attempts) if is_reversed else attempts))
    assert verdict.initiating == ()
    assert any("several stalls or attempts" in note for note in verdict.evidence.notes)
    assert _verdict(attempts[1]).initiating == (3,)


LATER = _asked(BEHIND).replace("18:44", "19:44")
OF_ANOTHER = "".join(
    _timed_out(rank, seq=7219) + _counted(rank, "2.6", enqueued=10).replace("id: 9", "id: 7219")
    for rank in range(WORLD)
    if rank != BEHIND
)


@each_case(
    "text",
    [
        _victims() + _asked(BEHIND) + _asked(BEHIND, completed=3),  # other counts of one rank
        OF_ANOTHER + _asked(BEHIND),  # a timeout of an operation that the counts exclude
        "".join(_timed_out(rank) for rank in range(WORLD) if rank != BEHIND) + LATER,  # an hour later
    ],
)
def test_any_single_sign_of_a_second_attempt_prevents_naming_a_rank(text: str) -> None:
    verdict = _verdict(text)
    assert verdict.initiating == ()
    assert any("several stalls or attempts" in note for note in verdict.evidence.notes)


def test_local_ranks_in_line_prefixes_are_not_used_as_global_ranks() -> None:
    """The log is of the second of two hosts. Its ranks in the default group are 4 to 7."""
    text = _victims() + _asked(BEHIND)
    for rank in range(WORLD):
        text = text.replace(f"(default_pg) Rank {rank}]", f"(default_pg) Rank {rank + WORLD}]")
    assert _verdict(text).initiating == ()


def test_only_the_newest_attempt_in_torchrun_folders_is_read(tmp_path: Path) -> None:
    for attempt, behind in enumerate((1, BEHIND)):
        for rank in range(WORLD):
            folder = tmp_path / "job" / f"attempt_{attempt}" / str(rank)
            folder.mkdir(parents=True)
            text = _asked(rank) if rank == behind else _timed_out(rank) + _counted(rank, "2.6")
            (folder / "stderr.log").write_text(text)
    verdict = judge(evidence_from_logs(read_logs([str(tmp_path)]), WORLD))
    assert verdict.initiating == (BEHIND,)
    assert any("earlier attempts" in note for note in verdict.evidence.notes)


def test_torchrun_folder_name_is_not_used_as_the_global_rank(tmp_path: Path) -> None:
    for node in range(2):
        folder = tmp_path / f"node{node}" / "attempt_0" / "1"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(f"[rank{1 + 2 * node}]: iteration 7\nCUDA error: launch failure\n")
    log = read_logs([str(tmp_path)])
    assert {rank: [line.fault for line in of_rank.faults] for rank, of_rank in log.ranks.items()} == {
        1: ["cuda-error"], 3: ["cuda-error"],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["node_rank_1.log", "local_rank_1.txt", "local-rank-1.log", "tp_rank1.log"])
def test_node_local_or_group_rank_in_a_file_name_is_not_used_as_the_global_rank(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("CUDA error: launch failure\n")
    (tmp_path / "global_rank_3.log").write_text("CUDA error: launch failure\n")
    assert set(read_logs([str(tmp_path)]).ranks) == {3}


def test_local_ranks_of_two_hosts_in_one_file_are_distinguished() -> None:
    def head(role: str, rank: int) -> str:
        return f"[{role}{rank % 4}]:[rank{rank}]:"

    for role in ("rank", "default"):
        text = "".join(
            _timed_out(rank, head=head(role, rank)) + _counted(rank, "2.6", head=head(role, rank))
            for rank in range(8)
            if rank != 6
        )
        verdict = _verdict(text + f"[{role}2]:" + _asked(6) + f"[{role}1]:CUDA error: launch failure\n", num_ranks=8)
        assert verdict.initiating == (6,)
        assert "cuda-error" not in {line.fault for line in verdict.evidence.ranks[1].log}


def test_line_that_merges_output_of_two_ranks_is_not_used() -> None:
    glued = "[rank3]:[E1206 18:44:12.7 ProcessGr" + _timed_out(2)
    verdict = _verdict(_victims() + glued)
    assert verdict.initiating == ()
    assert 2 not in verdict.evidence.ranks


def test_rank_is_not_named_when_it_may_wait_in_a_group_missing_from_its_log() -> None:
    """Rank 3 waits in the group of ranks 2 and 3. Rank 2 may wait in it too."""
    text = "".join(_timed_out(rank) + _counted(rank, "2.6") for rank in (0, 1)) + _in_tp(3, place=1, seq=50)
    assert _verdict(text + _asked(2) + _asked(3)).initiating == ()


def test_ranks_in_two_groups_with_the_same_name_are_not_compared() -> None:
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
        assert judge(evidence_from_logs(read_logs(names), WORLD)).initiating == (2,)


def test_pattern_without_files_and_log_without_ranks_raise_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="matches no file"):
        read_logs([str(tmp_path / "*.log")])
    with pytest.raises(UnreadableError, match="no rank and no stall"):
        _verdict("epoch 3, loss 0.1\n")
