"""Hangs of the grid, judged from state pages alone: the one that stands in its own work, whoever waits."""

from dataclasses import replace
from typing import Any

import pytest

from diagnose.hang.evidence import HangEvidence, LogLine, Process
from diagnose.hang.from_states import evidence_from_states
from diagnose.hang.verdict import State, hang_finding, judge
from diagnose.hang.waits import Why
from telemetry.topology import Topology
from tests.diagnose.hang.made_states import GRID, NOW_NS, SINCE_NS, behind_in_tp, operation, state


def _evidence(rank: int, **more: object) -> HangEvidence:
    return evidence_from_states(behind_in_tp(rank, **more))


@pytest.mark.parametrize("rank", range(GRID.world_size))
def test_the_rank_that_stands_in_its_own_work_is_behind_and_all_others_wait(rank: int) -> None:
    verdict = judge(_evidence(rank))
    assert (verdict.kind, verdict.initiating) == ("hung-collective", (rank,))
    assert {other for other, one in verdict.states.items() if one is State.WAITING} == set(range(8)) - {rank}
    assert "stopped in forward-compute" in verdict.headline


def test_the_chain_of_a_victim_leads_to_the_root() -> None:
    verdict = judge(_evidence(3))
    chain = verdict.chain(0)
    assert [(wait.rank, wait.on) for wait in chain] == [(0, (2,)), (2, (3,))]
    assert verdict.waits[2].why is Why.NEVER_ENTERED


def test_a_stopped_process_is_behind_even_while_it_waits_itself() -> None:
    states = behind_in_tp(3)
    states[2]["process"] = "stopped"
    states[3] = state(3, "tp-all-gather", [operation("tp", "tp-all-gather", 40, 39)])
    verdict = judge(evidence_from_states(states))
    assert verdict.initiating == (2,)
    assert "SIGSTOP" in verdict.headline


def test_the_first_to_die_is_named_and_not_those_that_were_ended_over_it() -> None:
    states = behind_in_tp(5)
    for rank in states:
        died_ns = SINCE_NS + 100_000_000 + (0 if rank == 6 else 2_000_000_000)
        states[rank] |= {"process": "dead", "died_ns": died_ns}
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", (6,))
    assert verdict.states[6] is State.DEAD


def test_a_job_that_hung_and_was_ended_for_it_is_judged_by_who_was_behind() -> None:
    states = behind_in_tp(5)
    for rank in states:
        states[rank] |= {"process": "dead", "died_ns": NOW_NS + rank}
    verdict = judge(evidence_from_states(states))
    assert verdict.initiating == (5,)


def test_a_rank_that_was_stopped_before_all_were_ended_is_behind() -> None:
    states = behind_in_tp(3)
    states[3] = state(3, "tp-all-gather", [operation("tp", "tp-all-gather", 40, 39)])
    for rank in states:
        living = "stopped" if rank == 2 else "alive"
        states[rank] |= {"process": "dead", "living": living, "died_ns": NOW_NS + rank}
    assert judge(evidence_from_states(states)).initiating == (2,)


def test_a_rank_that_left_an_operation_out_of_its_program_is_told_from_its_peer() -> None:
    """Ranks 0, 1, 4, 5 are of one stage. Rank 1 skipped the 40th of its tp group and went on to the dp group."""
    states = {}
    for rank in range(GRID.world_size):
        tp, dp, stage = (40, 39), (5, 5), "tp-all-gather"
        if rank == 1:
            tp, dp, stage = (39, 39), (6, 5), "grads-reduce-scatter"
        elif rank != 0:
            tp, dp, stage = (40, 40), (6, 5), "grads-reduce-scatter"
        rows = [
            operation("tp", "tp-all-gather", *tp, issued_ns=SINCE_NS - 5),
            operation("dp", "grads-reduce-scatter", *dp, issued_ns=SINCE_NS if dp[0] == 6 else SINCE_NS - 900),
        ]
        # All reduce with all, as when the norm of the gradients is taken over the whole grid.
        rows[1]["axis"] = None
        states[rank] = state(rank, stage, rows)
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", (1,))


def test_a_job_in_which_nobody_waits_has_no_verdict() -> None:
    states = {rank: state(rank, "forward-compute", []) for rank in range(GRID.world_size)}
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == (None, ())


def test_transfers_under_way_do_not_make_a_busy_rank_a_waiting_one() -> None:
    states = behind_in_tp(1)
    states[1]["operations"].append(operation("pp", "forward-send", 8, 7, peer=3))
    assert judge(evidence_from_states(states)).initiating == (1,)


def test_of_two_that_disagree_the_one_that_does_not_do_as_a_step_before_is_odd() -> None:
    states = behind_in_tp(3)
    usual = {"stage": "tp-all-gather", "size_bytes": 4096}
    states[2]["operations"] = [operation("tp", "tp-all-gather", 40, 39, usual=usual)]
    states[3] = state(3, "tp-reduce-scatter", [operation("tp", "tp-reduce-scatter", 40, 39, usual=usual)])
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", (3,))


def test_unequal_sizes_of_an_all_to_all_are_no_mismatch() -> None:
    states = behind_in_tp(3)
    for rank in (2, 3):
        rows = [operation("tp", "ep-all-to-all", 40, 39, size_bytes=4096 * rank)]
        states[rank] = state(rank, "ep-all-to-all", rows)
    assert judge(evidence_from_states(states)).kind != "collective-mismatch"


def test_two_that_disagree_and_have_no_past_are_not_told_apart() -> None:
    states = behind_in_tp(3)
    states[3] = state(3, "tp-reduce-scatter", [operation("tp", "tp-reduce-scatter", 40, 39)])
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", ())
    assert "no majority" in verdict.headline


def _fallen(died_ns: dict[int, int], faults: dict[int, str]) -> HangEvidence:
    """All ended, killed or by an error of their own; by rank when, and which fault is in the log."""
    evidence = _evidence(5)
    ranks = {
        rank: replace(
            one,
            process=Process.ENDED if rank in faults else Process.DEAD,
            died_ns=died_ns.get(rank, SINCE_NS + 2_100_000_000),
            log=(LogLine(at_ns=SINCE_NS, fault=faults[rank], text="..."),) if rank in faults else (),
        )
        for rank, one in evidence.ranks.items()
    }
    return replace(evidence, ranks=ranks)


def test_a_rank_that_lost_its_peer_is_not_the_first_to_fall_though_it_was_seen_first() -> None:
    at_ns = SINCE_NS + 100_000_000
    verdict = judge(_fallen({3: at_ns, 2: at_ns}, faults={2: "gloo-connection"}))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", (3,))


def test_a_rank_that_failed_with_an_error_of_its_own_is_named() -> None:
    at_ns = SINCE_NS + 100_000_000
    faults = {rank: "gloo-connection" for rank in range(8)} | {4: "cuda-out-of-memory"}
    verdict = judge(_fallen({4: at_ns}, faults))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", (4,))


DIED_NS = SINCE_NS + 100_000_000
LONG_BEFORE_NS = DIED_NS - 600_000_000_000


def _said(*faults: str, at_ns: int = DIED_NS) -> tuple[LogLine, ...]:
    return tuple(LogLine(at_ns=at_ns, fault=fault, text="...") for fault in faults)


def _one_that_fell(log: tuple[LogLine, ...], ended_by: str = "SIGABRT") -> HangEvidence:
    """Rank 3, with these last words; others died over it."""
    evidence = _fallen({3: DIED_NS}, faults={})
    fell = replace(evidence.ranks[3], log=log, ended_by=ended_by)
    return replace(evidence, ranks={**evidence.ranks, 3: fell})


@pytest.mark.parametrize("beside", [(), ("terminated", "gloo-connection"), ("python-exception", "nccl-error")])
def test_a_rank_that_fell_over_a_mismatch_is_not_accused(beside: tuple[str, ...]) -> None:
    """As long as nothing shows what was issued: a peer of it may have left an operation out."""
    verdict = judge(_one_that_fell(_said("collective-mismatch", *beside)))
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", ())
    assert verdict.headline.startswith("rank 3 died (SIGABRT) on host-0")
    assert "after a collective mismatch" in verdict.headline
    assert verdict.next_step.startswith("compare the collective of rank 3 with")
    finding = hang_finding(verdict)
    assert finding is not None
    assert "log_of_rank_3" in finding.evidence


@pytest.mark.parametrize(
    ("log", "ended_by"),
    [
        (_said("collective-mismatch"), "SIGKILL"),
        (_said("collective-mismatch", at_ns=LONG_BEFORE_NS), "SIGABRT"),
        (_said("collective-mismatch", "cuda-out-of-memory"), "SIGABRT"),
    ],
    ids=["killed", "long before", "out of memory"],
)
def test_a_rank_that_met_a_mismatch_and_died_of_something_else_is_accused(
    log: tuple[LogLine, ...], ended_by: str
) -> None:
    verdict = judge(_one_that_fell(log, ended_by))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", (3,))


def test_ranks_that_died_in_one_instant_are_told_and_none_is_accused() -> None:
    at_ns = SINCE_NS + 100_000_000
    verdict = judge(_fallen({2: at_ns, 3: at_ns}, faults={}))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", ())
    assert "ranks 2-3 died together" in verdict.headline


def test_of_ranks_that_died_in_one_instant_the_one_that_nobody_ended_on_purpose_is_named() -> None:
    evidence = _fallen({rank: SINCE_NS + 100_000_000 for rank in range(8)}, faults={})
    ended_by = {rank: "SIGTERM" for rank in range(8)} | {6: "SIGKILL"}
    ranks = {rank: replace(one, ended_by=ended_by[rank]) for rank, one in evidence.ranks.items()}
    verdict = judge(replace(evidence, ranks=ranks))
    assert verdict.initiating == (6,)
    assert "SIGKILL" in verdict.headline


def test_a_job_that_was_going_and_was_ended_on_purpose_has_no_verdict() -> None:
    evidence = _fallen({rank: SINCE_NS + 100_000_000 for rank in range(8)}, faults={})
    ranks = {rank: replace(one, ended_by="SIGTERM") for rank, one in evidence.ranks.items()}
    assert judge(replace(evidence, ranks=ranks)).initiating == ()


def test_a_member_that_has_ended_another_operation_under_the_number_is_odd() -> None:
    """Rank 3 issued half the bytes and got away with it; rank 2 is left standing in its own."""
    states = behind_in_tp(3)
    usual = {"seq": 20, "stage": "tp-all-gather", "size_bytes": 4096}
    states[2]["operations"] = [operation("tp", "tp-all-gather", 40, 39, usual=usual)]
    recent = [{"seq": 40, "stage": "tp-all-gather", "size_bytes": 2048}]
    states[3] = state(3, "forward-compute", [operation("tp", "tp-all-gather", 41, 41, recent=recent)])
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", (3,))


def test_sizes_of_an_operation_that_no_stage_is_named_after_may_differ() -> None:
    states = {rank: state(rank, "step", [operation(None, None, 5, 4, size_bytes=100 + rank)]) for rank in range(8)}
    states[3] = state(3, "data-load", [operation(None, None, 4, 4)])
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("hung-collective", (3,))


def test_a_rank_that_waits_in_a_plain_receive_is_a_victim() -> None:
    states = {rank: state(rank, "step", []) for rank in range(8)}
    states[0] = state(0, "step", [operation(None, None, 3, 2, peer=1)])
    states[1] = state(1, "data-load", [])
    verdict = judge(evidence_from_states(states))
    assert verdict.initiating == (1,)


def test_two_hosts_whose_clocks_differ_do_not_tell_who_died_first() -> None:
    at_ns = SINCE_NS + 100_000_000
    verdict = judge(_fallen({0: at_ns, 6: at_ns - 20_000_000}, faults={}))
    assert verdict.initiating == ()


def test_a_dead_rank_without_a_stamp_is_not_the_first() -> None:
    assert judge(_fallen({3: SINCE_NS + 100_000_000, 0: 0}, faults={})).initiating == (3,)


def test_somebodys_interrupt_is_no_fault_of_the_rank() -> None:
    evidence = _fallen({}, faults=dict.fromkeys(range(8), "python-exception"))
    said = {
        rank: replace(one, log=tuple(replace(line, text="KeyboardInterrupt") for line in one.log))
        for rank, one in evidence.ranks.items()
    }
    assert judge(replace(evidence, ranks=said)).initiating == ()


def test_where_nobody_saw_the_end_the_verdict_says_so_and_is_unsure() -> None:
    states = behind_in_tp(5)
    for rank in states:
        states[rank] |= {"process": "dead", "living": "alive"}
    verdict = judge(evidence_from_states(states))
    assert verdict.confidence <= 0.5
    assert any("no stall was observed" in note for note in verdict.evidence.notes)


MESH = Topology.parse("pp=2,dp_shard=2,tp=2")


def on_a_mesh(rank: int, mask: int, issued: int, completed: int, stage: str) -> dict[str, Any]:
    """As a newer agent writes it."""
    row = operation(None, "params-all-gather", issued, completed, mask=mask)
    told = {"dp": MESH.dp, "pp": MESH.pp, "tp": MESH.tp, "mesh": str(MESH)}
    return state(rank, stage, [row], topology=told)


def test_groups_of_a_mesh_are_those_that_the_page_names_by_their_axes() -> None:
    mask = MESH.mask("dp_shard")
    states = {rank: on_a_mesh(rank, mask, 8, 7, "params-all-gather") for rank in range(8)}
    states[6] = on_a_mesh(6, mask, 7, 7, "forward-compute")
    evidence = evidence_from_states(states)
    assert evidence.topology == MESH
    assert {(one.name, one.members) for one in evidence.groups} == {
        ("dp_shard", tuple(members)) for members in MESH.members(mask).tolist()
    }
    verdict = judge(evidence)
    assert (verdict.kind, verdict.initiating) == ("hung-collective", (6,))
    assert "params-all-gather #8 of dp_shard [4, 6]" in verdict.headline


def test_a_group_along_two_axes_has_the_name_that_pages_give_it() -> None:
    states = {rank: on_a_mesh(rank, MESH.mask("dp_shard", "tp"), 8, 7, "params-all-gather") for rank in range(8)}
    assert {group.name for group in evidence_from_states(states).groups} == {"dp_shard x tp"}


def test_members_that_a_page_names_are_taken_as_they_are() -> None:
    row = operation(None, "ep-all-to-all", 8, 7, mask=MESH.mask("dp_shard"), ranks=[0, 1, 2, 3])
    told = {"dp": MESH.dp, "pp": MESH.pp, "tp": MESH.tp, "mesh": str(MESH)}
    evidence = evidence_from_states({0: state(0, "ep-all-to-all", [row], topology=told)})
    assert [one.members for one in evidence.groups] == [(0, 1, 2, 3)]
