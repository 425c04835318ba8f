"""Contradictions between sources that name no rank or the same rank when they are alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from diagnose.hang.evidence import WHOLE_GROUP, Front, Group, HangEvidence, Pending, Process, RankEvidence
from diagnose.hang.sources.combine import Found, judge_together
from diagnose.hang.sources.from_communicators import evidence_from_ras
from diagnose.hang.sources.from_logs import evidence_from_logs
from diagnose.hang.sources.from_stacks import evidence_from_stacks
from diagnose.hang.sources.read_logs import read_logs
from diagnose.hang.sources.read_ras import read_ras
from tests.each_case import each_case

SIZE, BEHIND = 4, 2
WAITS = ("all_reduce (torch/distributed/distributed_c10d.py:2806)",)
LOADS = ("next_batch (loader.py:40)",)
UNCLEAR = ("train_step (train.py:88)",)
APART = "undecided: the {} and the {} do not show the same moment of the same job"


def dumps(op: str = "all_reduce", members: Sequence[Sequence[int]] = (), behind: int = BEHIND) -> Found:
    """All ranks but one wait in #9 of the group of all. ``members``: of further groups, in which nothing is pending."""
    ranks = {
        rank: RankEvidence(
            rank=rank,
            fronts={
                0: Front(entered=8 if rank == behind else 9, completed=8),
                **{at: Front(entered=3, completed=3) for at, group in enumerate(members, 1) if rank in group},
            },
            pending=() if rank == behind else (Pending(group=0, seq=9, op=op),),
        )
        for rank in range(SIZE)
    }
    groups = (
        Group(name="default_pg", members=tuple(range(SIZE)), uid="0"),
        *(Group(name=f"tp{at}", members=tuple(group), uid=f"{at}") for at, group in enumerate(members, 1)),
    )
    return Found(name="flight recorder", evidence=HangEvidence(world_size=SIZE, groups=groups, ranks=ranks))


def ras(*launched: Mapping[int, int]) -> Found:
    """``launched``: rank -> launched operations, for each communicator."""
    comms = [
        {
            "hash": f"0x{at:x}",
            "size": len(counts),
            "ranks": [
                {"rank": place, "host": "h", "pid": rank, "cuda_dev": 0, "collective_counts": {"AllReduce": count}}
                for place, (rank, count) in enumerate(counts.items())
            ],
        }
        for at, counts in enumerate(launched, 10)
    ]
    answer = json.dumps({"nccl_version": "2.29.1", "communicators": comms}).encode()
    return Found(name="NCCL RAS", evidence=evidence_from_ras(read_ras(answer, "ras")))


def stacks(*frames: tuple[str, ...]) -> Found:
    return Found(name="stacks", evidence=evidence_from_stacks(dict(enumerate(frames))))


def log(group: Group, ranks: Mapping[int, RankEvidence]) -> Found:
    return Found(name="log", evidence=HangEvidence(world_size=SIZE, groups=(group,), ranks=ranks))


EQUAL = dict.fromkeys(range(SIZE), 50)


def test_no_rank_is_named_if_ras_shows_the_rank_that_is_behind_in_the_dumps_as_far_as_the_others() -> None:
    verdict = judge_together([dumps(), ras(EQUAL)])
    assert (verdict.initiating, verdict.headline) == ((), APART.format("flight recorder", "NCCL RAS"))
    assert [one.text for one in verdict.evidence.contradictions] == [
        "the flight recorder says rank 2 has not entered all_reduce #9 of default_pg, in which rank 0 waits; the NCCL "
        "RAS says rank 2 has launched as many operations as rank 0"
    ]
    assert judge_together([dumps(), ras({**EQUAL, BEHIND: 49})]).initiating == (BEHIND,)


def test_operations_that_ras_does_not_count_contradict_nothing() -> None:
    assert judge_together([dumps("all_to_all"), ras(EQUAL)]).initiating == (BEHIND,)


def test_no_rank_is_named_if_ras_has_no_communicator_with_the_members_of_a_group() -> None:
    late = {**EQUAL, BEHIND: 49}
    halves = dumps(members=((0, 1), (2, 3)))
    assert judge_together([halves, ras(late, {0: 7, 1: 7}, {2: 7, 3: 7})]).initiating == (BEHIND,)
    verdict = judge_together([halves, ras(late, {0: 7, 3: 7}, {1: 7, 2: 7})])
    assert (verdict.initiating, verdict.headline) == ((), APART.format("flight recorder", "NCCL RAS"))
    assert [one.text for one in verdict.evidence.contradictions] == [
        f"the flight recorder shows operations of {name}, the NCCL RAS no communicator with its members"
        for name in ("tp1", "tp2")
    ]


def test_a_group_of_a_log_is_compared_with_the_communicator_that_has_its_members_at_their_places() -> None:
    """The log shows two of three members. Ranks 1 and 3 have places 0 and 2 in one communicator only."""
    group = Group(name="dp", members=(1, 3), complete=False, uid="7", places=(0, 2))
    entered = {
        rank: RankEvidence(
            rank=rank,
            fronts={0: Front(entered=number, completed=4)},
            pending=(Pending(group=0, seq=5, op="all_reduce"),),
            partial=True,
        )
        for rank, number in ((1, 6), (3, 5))
    }
    comms = ras(EQUAL, {1: 5, 2: 6, 3: 6}, {0: 3, 1: 3, 3: 3})
    verdict = judge_together([log(group, entered), comms])
    assert [one.text for one in verdict.evidence.contradictions] == [
        "the NCCL RAS shows rank 1 behind rank 3 in communicator 0xb, the log does not"
    ]


def test_a_guessed_number_of_ranks_contradicts_no_communicator() -> None:
    """The log shows ranks 0 to 2 of four: there is no line of rank 3."""
    group = Group(name="default_pg", members=(0, 1, 2), uid="0")
    ranks = {
        rank: RankEvidence(rank=rank, fronts={0: Front(entered=9, completed=8)}, partial=True) for rank in range(3)
    }
    evidence = HangEvidence(world_size=3, guessed_size=True, groups=(group,), ranks=ranks)
    verdict = judge_together([Found(name="log", evidence=evidence), ras(EQUAL, {0: 3, 1: 3})])
    assert verdict.evidence.contradictions == ()


def test_a_wrong_collective_is_named_although_ranks_wait_for_other_ranks() -> None:
    """Rank 3 has not entered the operation. It may wait in one that the log does not show."""
    ranks = {
        rank: RankEvidence(rank=rank, pending=(Pending(group=0, seq=9, op=op, signature=op),), partial=True)
        for rank, op in ((0, "all_gather"), (1, "all_gather"), (BEHIND, "reduce_scatter"), (4, "all_gather"))
    }
    group = Group(name="default_pg", members=tuple(range(5)), uid="0")
    found = log(group, {**ranks, 3: RankEvidence(rank=3, partial=True)})
    assert judge_together([found]).initiating == (BEHIND,)


def reported(seq: int) -> Found:
    """A log in which rank 1 reports an operation that timed out. No line names its group, as in torch 2.2."""
    unknown = Group(name="an unknown group", members=(1,), complete=False)
    op = Pending(group=0, seq=seq, op="all_reduce", is_transfer=True, peer=WHOLE_GROUP)
    return log(unknown, {1: RankEvidence(rank=1, pending=(op,), partial=True)})


def test_no_rank_is_named_if_a_log_reports_an_operation_that_is_not_pending_in_the_dump_of_its_rank() -> None:
    assert judge_together([dumps(), reported(9)]).initiating == (BEHIND,)
    verdict = judge_together([dumps(), reported(7)])
    assert (verdict.initiating, verdict.headline) == ((), APART.format("flight recorder", "log"))
    assert [one.text for one in verdict.evidence.contradictions] == [
        "the log says all_reduce #7 of rank 1 has timed out, the flight recorder does not show it"
    ]


TIMEOUT = (
    "[rank1]:[E1206 {time}:12.7 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds "
    "before timing out.\n"
    "[rank1]:[E1206 {time}:12.7 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] failure detected by "
    "watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last completed work: {before}\n"
)


def test_a_log_with_an_earlier_stall_contradicts_no_dump(tmp_path: Path) -> None:
    stalls = (TIMEOUT.format(time=time, seq=seq, before=seq - 1) for time, seq in (("08:44", 20), ("18:44", 9)))
    (tmp_path / "job.log").write_text("".join(stalls))
    found = Found(name="log", evidence=evidence_from_logs(read_logs([str(tmp_path)])))
    assert "log: the lines are of several stalls or attempts of the job" in " ".join(found.evidence.notes)
    assert judge_together([dumps(), found]).initiating == (BEHIND,)


def test_a_reported_operation_may_be_one_that_the_flight_recorder_has_lost() -> None:
    found = dumps()
    more = replace(found.evidence.ranks[1], fronts={0: Front(entered=12, completed=8)})
    evidence = replace(found.evidence, ranks={**found.evidence.ranks, 1: more})
    assert judge_together([replace(found, evidence=evidence), reported(11)]).initiating == (BEHIND,)


S = 10**9


def stopped_files(*, begun_s: int) -> Found:
    """Rank files: rank 2 is stopped, and the operation in which the others wait began at this time."""
    ranks = {
        rank: RankEvidence(
            rank=rank,
            process=Process.STOPPED if rank == BEHIND else Process.ALIVE,
            fronts={0: Front(entered=2 if rank == BEHIND else 3, completed=2)},
            pending=() if rank == BEHIND else (Pending(group=0, seq=3, op="tp-all-reduce", since_ns=begun_s * S),),
        )
        for rank in range(SIZE)
    }
    group = Group(name="tp", members=tuple(range(SIZE)))
    return Found(name="rank files", evidence=HangEvidence(world_size=SIZE, groups=(group,), ranks=ranks))


def dump_of_rank_0(*, begun_s: int) -> Found:
    found = dumps()
    waiting = replace(found.evidence.ranks[0].pending[0], since_ns=begun_s * S)
    of_rank = replace(found.evidence.ranks[0], pending=(waiting,))
    return replace(found, evidence=replace(found.evidence, ranks={0: of_rank}))


@each_case(("begun_s", "is_named"), [(1000, True), (1050, True), (1070, False), (930, False)])
def test_no_rank_is_named_if_a_dump_shows_an_operation_that_began_long_before_or_after_those_of_rank_files(
    begun_s: int, is_named: bool
) -> None:
    verdict = judge_together([stopped_files(begun_s=1000), dump_of_rank_0(begun_s=begun_s)])
    assert verdict.initiating == ((BEHIND,) if is_named else ())
    if not is_named:
        assert verdict.headline == APART.format("rank files", "flight recorder")


def test_a_stack_does_not_name_a_rank_if_ras_shows_that_the_others_wait_for_another_rank() -> None:
    waiting = [WAITS, WAITS, LOADS, WAITS]
    assert judge_together([ras(EQUAL), stacks(*waiting)]).initiating == (BEHIND,)
    verdict = judge_together([ras(EQUAL, {0: 7, 1: 6}), stacks(*waiting)])
    assert (verdict.initiating, verdict.headline) == ((), "undecided: the sources contradict each other on rank 2")
    assert [one.text for one in verdict.evidence.contradictions] == [
        "in the NCCL RAS, ranks wait for rank 1, and none is known to wait for rank 2"
    ]


def test_waits_for_other_ranks_contradict_no_verdict_that_names_no_rank() -> None:
    verdict = judge_together([dumps(behind=-1), ras(EQUAL, {0: 7, 1: 6})])
    assert verdict.headline.startswith("all of default_pg [0-3] entered all_reduce #9 and none finished it")
    assert verdict.evidence.contradictions == ()


def test_the_first_line_names_the_source_if_no_other_one_confirms_it() -> None:
    waiting = [WAITS, WAITS, UNCLEAR, WAITS]
    alone = judge_together([dumps(), stacks(*waiting)]).headline
    assert alone.endswith("; only the flight recorder names it")
    assert "only" not in judge_together([dumps()]).headline
    assert "only" not in judge_together([dumps(), ras({**EQUAL, BEHIND: 49}), stacks(*waiting)]).headline
