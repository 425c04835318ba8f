"""Which ranks are profiled for a finding, and what is reported of a profile without an answer."""

import io
from dataclasses import replace

import pyarrow as pa
from rich.console import Console

from diagnose.findings import Finding, Kind, Role, Severity, StepWindow, Suspect
from diagnose.pipeline import diagnose_run
from diagnose.profiles import LOST, NO_AGENT, choose_for, choose_ranks, newest_finding, profiles_for, stored_profiles
from diagnose.report import report_object, report_text
from telemetry.profiles import Phase, ProfileOutcome
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.tables import PROFILE_REQUESTS
from telemetry.topology import Topology
from tests.telemetry.made_rows import insert
from tests.ui.made_profiles import FIRST, store_profiles, store_state
from tests.ui.synthetic_run import SyntheticRun


def finding(*ranks: int, last_step: int) -> Finding:
    return Finding(
        detector="x",
        kind=Kind.COMPUTE_STRAGGLER,
        severity=Severity.WARNING,
        suspects=tuple(Suspect(rank=rank, host="", role=Role.INITIATING) for rank in ranks),
        window=StepWindow(first_step=0, last_step=last_step),
        seconds_lost=1.0,
        confidence=0.9,
        summary="",
        next_step="",
    )


def test_a_peer_is_a_replica_of_the_suspect() -> None:
    topology = Topology(dp=2, pp=2, tp=2)
    choice = choose_ranks([5], topology, {})
    (peer,) = choice.peers
    assert (topology.place(peer).pp, topology.place(peer).tp) == (topology.place(5).pp, topology.place(5).tp)
    assert choice.ranks == (1, 5)


def test_peer_is_a_rank_of_the_same_stage_when_there_are_no_replicas() -> None:
    assert choose_ranks([3], Topology(pp=2, tp=2), {}).peers == (2,)


def test_suspect_is_not_chosen_as_a_peer() -> None:
    assert choose_ranks([0, 1], Topology(dp=4), {}).peers == (2,)
    assert choose_ranks([0, 1], Topology(dp=2), {}).peers == ()


def test_a_peer_has_the_role_of_its_suspect() -> None:
    roles = {0: "actor", 1: "rollout", 2: "rollout", 3: "actor"}
    assert choose_ranks([0], Topology(dp=4), roles).peers == (3,)


def test_ranks_to_profile_in_a_stored_run_are_chosen_by_its_mesh(embedded: EmbeddedStore) -> None:
    run = SyntheticRun(topology=Topology(dp=2, pp=2, tp=2))
    run.introduce(embedded)
    choice = choose_for(StoreReader(embedded), run.run_id, run.attempt, [5])
    assert (choice.suspects, choice.peers) == ((5,), (1,))


def test_newest_finding_is_the_last_one_that_names_ranks() -> None:
    old, new, nobody = finding(1, last_step=5), finding(2, last_step=9), finding(last_step=20)
    assert newest_finding([old, new, nobody]) is new
    assert newest_finding([nobody]) is None


def test_a_finding_has_the_profiles_of_its_ranks_and_of_their_peers(embedded: EmbeddedStore) -> None:
    store_profiles(embedded, "run", at_ns=0)
    profiles = stored_profiles(StoreReader(embedded), "run", 0)

    def ranks(found: Finding) -> list[int]:
        return [profile.rank for profile in profiles_for(found, profiles)]

    assert ranks(finding(5, last_step=9)) == [1, 5]
    assert ranks(replace(finding(5, last_step=9), kind=Kind.LATE_LAUNCH)) == [5]
    assert ranks(finding(3, last_step=9)) == []  # it failed
    assert ranks(finding(last_step=9)) == []


def test_the_report_of_a_stored_run_lists_the_profiles_of_its_finding(embedded: EmbeddedStore) -> None:
    run = SyntheticRun()
    run.introduce(embedded)
    run.advance(embedded, 30)
    store_profiles(embedded, run.run_id, at_ns=run.now_ns)
    report = diagnose_run(StoreReader(embedded), run.run_id, run.attempt)
    (found,) = report_object(report)["findings"]
    assert found["profiles"] == [{"profile": FIRST, "rank": rank, "first_step": 20, "last_step": 24} for rank in (1, 5)]
    console = Console(file=io.StringIO(), width=200)
    console.print(report_text(report))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert f"    profile: rankscope profile synthetic --attempt 0 --get {FIRST[:8]} --out DIR" in lines


def test_profile_without_an_answer_in_time_counts_as_failed(embedded: EmbeddedStore) -> None:
    store_profiles(embedded, "run", at_ns=0)
    asked = {"profile_id": "3" * 32, "at_ns": 0, "steps": 5, "seconds": 60, "finding": ""}
    requests = pa.Table.from_pylist([{**asked, "rank": rank} for rank in (0, 1)], schema=PROFILE_REQUESTS)
    insert(embedded, "profile_requests", requests)
    running = ProfileOutcome(profile_id="3" * 32, phase=Phase.RUNNING)
    store_state(embedded, "run", 1, running, at_ns=1)

    def reasons(seconds: int) -> list[str]:
        found = stored_profiles(StoreReader(embedded), "run", 0, clock_ns=lambda: seconds * 10**9)
        return [profile.reason for profile in found if profile.profile_id == "3" * 32]

    assert reasons(20) == ["", ""]
    assert reasons(40) == [NO_AGENT, ""]
    assert reasons(400) == [NO_AGENT, LOST]
    found = stored_profiles(StoreReader(embedded), "run", 0, clock_ns=lambda: 10**18)
    assert [profile.phase for profile in found if profile.rank == 5] == [Phase.STORED]
