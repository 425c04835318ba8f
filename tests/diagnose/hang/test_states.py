"""Hangs of a grid, judged from state pages alone. The rank that does not wait is named, and the others are victims."""

from dataclasses import replace
from typing import Any

from diagnose.hang.evidence import HangEvidence, LogLine, Process
from diagnose.hang.from_states import evidence_from_states
from diagnose.hang.verdict import State, hang_finding, judge
from diagnose.hang.waits import Why
from telemetry.topology import Topology
from tests.diagnose.hang.made_states import GRID, NOW_NS, SINCE_NS, behind_in_tp, operation, state
from tests.each_case import each_case


def _evidence(rank: int, **more: object) -> HangEvidence:
    return evidence_from_states(behind_in_tp(rank, **more))


@each_case("rank", range(GRID.world_size))
def test_rank_that_stopped_in_compute_is_named_and_all_others_wait(rank: int) -> None:
    verdict = judge(_evidence(rank))
    assert (verdict.kind, verdict.initiating) == ("hung-collective", (rank,))
    assert {other for other, one in verdict.states.items() if one is State.WAITING} == set(range(8)) - {rank}
    assert "stopped in forward-compute" in verdict.headline


def test_wait_chain_of_a_victim_leads_to_the_culprit() -> None:
    verdict = judge(_evidence(3))
    chain = verdict.chain(0)
    assert [(wait.rank, wait.on) for wait in chain] == [(0, (2,)), (2, (3,))]
    assert verdict.waits[2].why is Why.NEVER_ENTERED


def test_stopped_process_is_named_although_it_waits_in_a_collective() -> None:
    states = behind_in_tp(3)
    states[2]["process"] = "stopped"
    states[3] = state(3, "tp-all-gather", [operation("tp", "tp-all-gather", 40, 39)])
    verdict = judge(evidence_from_states(states))
    assert verdict.initiating == (2,)
    assert "SIGSTOP" in verdict.headline


def test_first_rank_that_died_is_named_and_ranks_that_died_because_of_it_are_not() -> None:
    states = behind_in_tp(5)
    for rank in states:
        died_ns = SINCE_NS + 100_000_000 + (0 if rank == 6 else 2_000_000_000)
        states[rank] |= {"process": "dead", "died_ns": died_ns}
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", (6,))
    assert verdict.states[6] is State.DEAD


def test_rank_that_was_behind_is_named_when_all_ranks_were_killed_after_the_hang() -> None:
    states = behind_in_tp(5)
    for rank in states:
        states[rank] |= {"process": "dead", "died_ns": NOW_NS + rank}
    verdict = judge(evidence_from_states(states))
    assert verdict.initiating == (5,)


def test_rank_that_was_stopped_before_all_ranks_were_killed_is_named() -> None:
    states = behind_in_tp(3)
    states[3] = state(3, "tp-all-gather", [operation("tp", "tp-all-gather", 40, 39)])
    for rank in states:
        living = "stopped" if rank == 2 else "alive"
        states[rank] |= {"process": "dead", "living": living, "died_ns": NOW_NS + rank}
    assert judge(evidence_from_states(states)).initiating == (2,)


def test_rank_that_skipped_a_collective_is_named_and_its_waiting_peer_is_not() -> None:
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
        # The reduction is over all ranks, like that of the gradient norm.
        rows[1]["axis"] = None
        states[rank] = state(rank, stage, rows)
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", (1,))


def test_no_verdict_when_no_rank_waits() -> None:
    states = {rank: state(rank, "forward-compute", []) for rank in range(GRID.world_size)}
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == (None, ())


def test_busy_rank_with_a_pending_send_is_named() -> None:
    states = behind_in_tp(1)
    states[1]["operations"].append(operation("pp", "forward-send", 8, 7, peer=3))
    assert judge(evidence_from_states(states)).initiating == (1,)


def test_mismatch_of_two_ranks_names_the_one_that_differs_from_its_earlier_steps() -> None:
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


def test_mismatch_of_two_ranks_names_neither_when_earlier_steps_are_unknown() -> None:
    states = behind_in_tp(3)
    states[3] = state(3, "tp-reduce-scatter", [operation("tp", "tp-reduce-scatter", 40, 39)])
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", ())
    assert "no majority" in verdict.headline


def _all_ended(died_ns: dict[int, int], faults: dict[int, str]) -> HangEvidence:
    """All ranks have ended: killed, or with an error if ``faults`` has one. Both arguments are by rank."""
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


def test_rank_that_lost_its_peer_is_not_named_when_the_peer_died_at_the_same_time() -> None:
    at_ns = SINCE_NS + 100_000_000
    verdict = judge(_all_ended({3: at_ns, 2: at_ns}, faults={2: "gloo-connection"}))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", (3,))


def test_a_rank_that_failed_with_an_error_of_its_own_is_named() -> None:
    at_ns = SINCE_NS + 100_000_000
    faults = {rank: "gloo-connection" for rank in range(8)} | {4: "cuda-out-of-memory"}
    verdict = judge(_all_ended({4: at_ns}, faults))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", (4,))


DIED_NS = SINCE_NS + 100_000_000
LONG_BEFORE_NS = DIED_NS - 600_000_000_000


def _log_lines(*faults: str, at_ns: int = DIED_NS) -> tuple[LogLine, ...]:
    return tuple(LogLine(at_ns=at_ns, fault=fault, text="...") for fault in faults)


def _rank_3_died_first(log: tuple[LogLine, ...], ended_by: str = "SIGABRT") -> HangEvidence:
    """Rank 3 died first, with this log. The others died because of it."""
    evidence = _all_ended({3: DIED_NS}, faults={})
    fell = replace(evidence.ranks[3], log=log, ended_by=ended_by)
    return replace(evidence, ranks={**evidence.ranks, 3: fell})


@each_case("beside", [(), ("terminated", "gloo-connection"), ("python-exception", "nccl-error")])
def test_rank_that_died_of_a_collective_mismatch_is_not_named(beside: tuple[str, ...]) -> None:
    """The evidence does not show which operations were issued. A peer may have skipped one."""
    verdict = judge(_rank_3_died_first(_log_lines("collective-mismatch", *beside)))
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", ())
    assert verdict.headline.startswith("rank 3 died (SIGABRT) on host-0")
    assert "after a collective mismatch" in verdict.headline
    assert verdict.next_step.startswith("compare the collective of rank 3 with")
    finding = hang_finding(verdict)
    assert finding is not None
    assert "log_of_rank_3" in finding.evidence


@each_case(
    ("log", "ended_by"),
    [
        (_log_lines("collective-mismatch"), "SIGKILL"),
        (_log_lines("collective-mismatch", at_ns=LONG_BEFORE_NS), "SIGABRT"),
        (_log_lines("collective-mismatch", "cuda-out-of-memory"), "SIGABRT"),
    ],
)
def test_rank_with_a_mismatch_in_its_log_is_named_when_it_died_of_another_cause(
    log: tuple[LogLine, ...], ended_by: str
) -> None:
    verdict = judge(_rank_3_died_first(log, ended_by))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", (3,))


def test_ranks_that_died_at_the_same_time_are_reported_and_none_is_named() -> None:
    at_ns = SINCE_NS + 100_000_000
    verdict = judge(_all_ended({2: at_ns, 3: at_ns}, faults={}))
    assert (verdict.kind, verdict.initiating) == ("dead-rank", ())
    assert "ranks 2-3 died together" in verdict.headline


def test_rank_killed_by_sigkill_is_named_when_the_others_died_of_sigterm_at_the_same_time() -> None:
    evidence = _all_ended({rank: SINCE_NS + 100_000_000 for rank in range(8)}, faults={})
    ended_by = {rank: "SIGTERM" for rank in range(8)} | {6: "SIGKILL"}
    ranks = {rank: replace(one, ended_by=ended_by[rank]) for rank, one in evidence.ranks.items()}
    verdict = judge(replace(evidence, ranks=ranks))
    assert verdict.initiating == (6,)
    assert "SIGKILL" in verdict.headline


def test_no_rank_is_named_when_all_ranks_were_ended_by_sigterm() -> None:
    evidence = _all_ended({rank: SINCE_NS + 100_000_000 for rank in range(8)}, faults={})
    ranks = {rank: replace(one, ended_by="SIGTERM") for rank, one in evidence.ranks.items()}
    assert judge(replace(evidence, ranks=ranks)).initiating == ()


def test_member_that_completed_a_different_operation_with_the_same_number_is_named() -> None:
    """Rank 3 issued half the bytes and completed. Rank 2 still waits in its own operation."""
    states = behind_in_tp(3)
    usual = {"seq": 20, "stage": "tp-all-gather", "size_bytes": 4096}
    states[2]["operations"] = [operation("tp", "tp-all-gather", 40, 39, usual=usual)]
    recent = [{"seq": 40, "stage": "tp-all-gather", "size_bytes": 2048}]
    states[3] = state(3, "forward-compute", [operation("tp", "tp-all-gather", 41, 41, recent=recent)])
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", (3,))


def test_different_sizes_of_an_operation_without_a_stage_are_not_a_mismatch() -> None:
    states = {rank: state(rank, "step", [operation(None, None, 5, 4, size_bytes=100 + rank)]) for rank in range(8)}
    states[3] = state(3, "data-load", [operation(None, None, 4, 4)])
    verdict = judge(evidence_from_states(states))
    assert (verdict.kind, verdict.initiating) == ("hung-collective", (3,))


def test_peer_is_named_when_a_rank_waits_in_a_plain_receive() -> None:
    states = {rank: state(rank, "step", []) for rank in range(8)}
    states[0] = state(0, "step", [operation(None, None, 3, 2, peer=1)])
    states[1] = state(1, "data-load", [])
    verdict = judge(evidence_from_states(states))
    assert verdict.initiating == (1,)


def test_no_rank_is_named_when_ranks_on_two_hosts_died_within_the_clock_error() -> None:
    at_ns = SINCE_NS + 100_000_000
    verdict = judge(_all_ended({0: at_ns, 6: at_ns - 20_000_000}, faults={}))
    assert verdict.initiating == ()


def test_dead_rank_without_a_time_of_death_is_not_named() -> None:
    assert judge(_all_ended({3: SINCE_NS + 100_000_000, 0: 0}, faults={})).initiating == (3,)


def test_no_rank_is_named_when_all_ranks_ended_with_keyboard_interrupt() -> None:
    evidence = _all_ended({}, faults=dict.fromkeys(range(8), "python-exception"))
    said = {
        rank: replace(one, log=tuple(replace(line, text="KeyboardInterrupt") for line in one.log))
        for rank, one in evidence.ranks.items()
    }
    assert judge(replace(evidence, ranks=said)).initiating == ()


def test_verdict_has_a_note_and_low_confidence_when_no_stall_was_observed() -> None:
    states = behind_in_tp(5)
    for rank in states:
        states[rank] |= {"process": "dead", "living": "alive"}
    verdict = judge(evidence_from_states(states))
    assert verdict.confidence <= 0.5
    assert any("no stall was observed" in note for note in verdict.evidence.notes)


MESH = Topology.parse("pp=2,dp_shard=2,tp=2")


def on_a_mesh(rank: int, mask: int, issued: int, completed: int, stage: str) -> dict[str, Any]:
    """A state as a newer agent writes it."""
    row = operation(None, "params-all-gather", issued, completed, mask=mask)
    told = {"dp": MESH.dp, "pp": MESH.pp, "tp": MESH.tp, "mesh": str(MESH)}
    return state(rank, stage, [row], topology=told)


def test_groups_of_a_mesh_are_derived_from_the_axis_masks_in_state_pages() -> None:
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


def test_group_along_two_axes_is_named_after_both_axes() -> None:
    states = {rank: on_a_mesh(rank, MESH.mask("dp_shard", "tp"), 8, 7, "params-all-gather") for rank in range(8)}
    assert {group.name for group in evidence_from_states(states).groups} == {"dp_shard x tp"}


def test_members_listed_in_a_state_page_are_used_instead_of_the_axis_mask() -> None:
    row = operation(None, "ep-all-to-all", 8, 7, mask=MESH.mask("dp_shard"), ranks=[0, 1, 2, 3])
    told = {"dp": MESH.dp, "pp": MESH.pp, "tp": MESH.tp, "mesh": str(MESH)}
    evidence = evidence_from_states({0: state(0, "ep-all-to-all", [row], topology=told)})
    assert [one.members for one in evidence.groups] == [(0, 1, 2, 3)]
