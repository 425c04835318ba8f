"""nic-flap: only a network card that repeatedly loses its link and delays the job is reported."""

from dataclasses import replace

import numpy as np
import pytest

from diagnose.detectors.nic_flap import detect_nic_flap
from diagnose.findings import Finding, Kind, Role, Severity
from diagnose.model.fleet import HostEvent
from diagnose.model.marks import marks_of
from diagnose.model.outage_effect import with_effects
from diagnose.model.outages import Effect, Outage, Stretched, describe_stretched, find_outages, patience_of
from diagnose.model.view import RunView
from diagnose.settings import DetectorSettings
from telemetry.errors import UsageError
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_fleet import made_event, made_fleet, timed
from tests.diagnose.made_operations import around, make_operations
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

SECOND_NS = 1_000_000_000
GRID = Topology(dp=4, pp=1, tp=2)
HOSTS = ("h0", "h0", "h1", "h1", "h2", "h2", "h3", "h3")
USUAL_NS = 30e6
NUM_STEPS = 40


def job(*, held: dict[int, float] | None = None, jitter: float = 0.1, seed: int = 0) -> RunView:
    """Steps of one second. Each has one gradient reduction, which starts after half a second.

    ``held`` maps a row to the seconds by which the reduction is delayed on all ranks.
    """
    view = make_view(GRID, num_steps=NUM_STEPS, seed=seed)
    step_ns = np.full(NUM_STEPS, 1.0 * SECOND_NS)
    duration_ns = around(USUAL_NS, (NUM_STEPS, GRID.world_size), jitter=jitter, seed=seed)
    for row, seconds in (held or {}).items():
        duration_ns[row] += seconds * SECOND_NS
        step_ns[row] += seconds * SECOND_NS
    view = timed(replace(view, hosts=HOSTS, step_ns=step_ns))
    assert view.step_start_ns is not None
    start_ns = (view.step_start_ns + SECOND_NS // 2)[:, None] + np.zeros_like(duration_ns)
    return replace(view, operations={Stage.GRADS_REDUCE_SCATTER: make_operations(duration_ns, start_ns)})


def flaps(view: RunView, host: str, rows: dict[int, float], device: str = "eth0") -> RunView:
    """The view with link losses of ``host``. ``rows`` maps a row to the seconds without a link."""
    assert view.step_start_ns is not None
    events: list[HostEvent] = []
    for row, seconds in rows.items():
        down_ns = int(view.step_start_ns[row] + SECOND_NS // 2 + 5_000_000)
        up_ns = down_ns + int(seconds * SECOND_NS)
        events.append(made_event(Happening.LINK_DOWN, host, device, at_ns=down_ns))
        events.append(made_event(Happening.LINK_UP, host, device, at_ns=up_ns))
    return replace(view, fleet=made_fleet(*view.fleet.events, *events))


def flapping(lengths: tuple[float, ...], *, host: str = "h2", seed: int = 0) -> RunView:
    rows = {5 + 7 * number: seconds for number, seconds in enumerate(lengths)}
    return flaps(job(held={row: 1.1 * seconds for row, seconds in rows.items()}, seed=seed), host, rows)


def found_in(view: RunView) -> list[Finding]:
    return detect_nic_flap(with_effects(view))


def only(view: RunView) -> Finding:
    (finding,) = found_in(view)
    return finding


@over_seeds(range(10))
def test_a_healthy_network_yields_nothing(seed: int) -> None:
    assert found_in(job(jitter=1.0, seed=seed)) == []


@pytest.mark.parametrize(("host", "seed"), [("h0", 1), ("h1", 2), ("h2", 3), ("h3", 4)])
def test_a_card_that_flaps_three_times_is_named_with_its_host(host: str, seed: int) -> None:
    finding = only(flapping((0.5, 3.0, 8.0), host=host, seed=seed))
    assert (finding.kind, finding.hosts) == (Kind.NIC_FLAP, [host])
    assert finding.ranks == [rank for rank, name in enumerate(HOSTS) if name == host]
    assert finding.evidence["device"] == "eth0"
    assert finding.evidence["flaps"] == 3
    assert finding.stage == "grads-reduce-scatter"
    assert finding.seconds_lost == pytest.approx(1.1 * 11.5, rel=0.05)
    held = {suspect.rank for suspect in finding.suspects if suspect.role is Role.VICTIM}
    assert held == set(range(8)) - set(finding.ranks)


@each_case("lengths", [(0.5,), (8.0,), (3.0, 3.0)])
def test_few_short_flaps_are_marks_and_no_finding(lengths: tuple[float, ...]) -> None:
    view = flapping(lengths)
    assert found_in(view) == []
    marks = marks_of(with_effects(view))
    assert [(mark.host, mark.device, round(mark.seconds, 3)) for mark in marks] == [
        ("h2", "eth0", one) for one in lengths
    ]
    assert all("grads-reduce-scatter" in mark.stretched[0] for mark in marks)


def test_one_long_flap_is_a_finding() -> None:
    assert only(flapping((26.0,))).evidence["longest_s"] == 26.0


def test_flapping_card_that_slowed_nothing_is_not_named() -> None:
    quiet = flaps(job(), "h1", {row: 0.4 for row in (3, 9, 15, 21)}, device="mgmt0")
    assert found_in(quiet) == []
    assert all(not mark.stretched and not mark.held_s for mark in marks_of(with_effects(quiet)))


def test_only_the_card_whose_flaps_delayed_the_job_is_named() -> None:
    view = flaps(flapping((3.0, 3.0, 3.0), host="h2"), "h0", {1: 0.1, 2: 0.1, 8: 0.1, 25: 0.1})
    assert only(view).hosts == ["h2"]


def test_delay_of_groups_inside_one_host_is_not_attributed_to_its_card() -> None:
    view = flapping((3.0, 3.0, 3.0))
    assert found_in(replace(view, hosts=("h2",) * 8)) == []


def test_settings_control_the_number_of_flaps_and_their_time_window() -> None:
    view = flapping((3.0, 3.0, 3.0))
    assert found_in(replace(view, settings=DetectorSettings(flaps_within_s=10.0))) == []
    assert found_in(replace(view, settings=DetectorSettings(flaps=4))) == []
    assert only(replace(flapping((3.0,)), settings=DetectorSettings(flaps=1))).evidence["flaps"] == 1


@each_case(
    ("timeout_s", "severity", "words"),
    [
        ("60", Severity.CRITICAL, "survives such flaps"),
        ("15", Severity.CRITICAL, "a slightly longer link loss aborts the job"),
        ("8", Severity.CRITICAL, "the next link loss can abort the job"),
    ],
)
def test_summary_compares_the_longest_delay_with_the_collective_timeout(
    timeout_s: str, severity: Severity, words: str
) -> None:
    told = ({"backend": "gloo", "collective_timeout_s": timeout_s},) * 8
    finding = only(replace(flapping((3.0, 3.0, 8.0)), meta=told))
    assert words in finding.summary
    assert finding.severity is severity


def test_evidence_contains_the_patience_only_if_the_job_recorded_its_timeout() -> None:
    view = flapping((3.0, 3.0, 8.0))
    assert "patience_s" not in only(replace(view, meta=())).evidence
    told = ({"backend": "gloo", "collective_timeout_s": "60"},) * 8
    assert only(replace(view, meta=told)).evidence["patience_s"] == 60


def test_infiniband_retry_budget_replaces_a_longer_collective_timeout() -> None:
    told = {"backend": "nccl", "collective_timeout_s": "600", "NCCL_IB_TIMEOUT": "18", "NCCL_IB_RETRY_CNT": "7"}
    assert patience_of([told]).seconds == pytest.approx(7.516, rel=1e-3)
    assert patience_of([{**told, "NCCL_IB_DISABLE": "1"}]).seconds == 600
    assert patience_of([{**told, "NCCL_IB_TIMEOUT": "odd"}]).seconds == pytest.approx(30.06, rel=1e-3)
    assert patience_of([{}, {"collective_timeout_s": "nan"}]).survives(1) is None


@each_case(
    ("words", "told"),
    [
        ({"backend": "gloo", "GLOO_SOCKET_IFNAME": "data0,data1"}, False),
        ({"backend": "gloo", "GLOO_SOCKET_IFNAME": "eth0.7"}, True),
        ({"backend": "nccl", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=data0"}, False),
        ({"backend": "nccl", "NCCL_SOCKET_IFNAME": "=data0"}, True),
        ({"backend": "nccl", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "^docker"}, True),
        ({}, True),
    ],
)
def test_a_card_that_the_job_does_not_use_is_not_named(words: dict[str, str], told: bool) -> None:
    assert bool(found_in(replace(flapping((3.0, 3.0, 3.0)), meta=(words,) * 8))) is told


def test_link_loss_is_reported_immediately_only_while_it_stops_the_job() -> None:
    view = job()
    assert view.step_start_ns is not None
    stopped_ns = int(view.step_start_ns[-1] + view.step_ns[-1])
    down = made_event(Happening.LINK_DOWN, "h1", "eth0", at_ns=stopped_ns - SECOND_NS // 5)
    fleet = made_fleet(down, seen_ns=stopped_ns + 4 * SECOND_NS)
    finding = only(replace(view, fleet=replace(fleet, moved_ns=stopped_ns)))
    assert (finding.hosts, finding.severity) == (["h1"], Severity.CRITICAL)
    assert "is down" in finding.summary
    moving = replace(fleet, moved_ns=fleet.seen_ns)
    assert found_in(replace(view, fleet=moving)) == []
    old = replace(fleet, events=(replace(down, at_ns=stopped_ns - 3_600 * SECOND_NS),), moved_ns=stopped_ns)
    assert found_in(replace(view, fleet=old)) == []


@pytest.mark.parametrize(("seconds", "told"), [(0.4, False), (6.0, True)])
def test_ongoing_link_loss_is_reported_after_six_seconds_but_not_after_half_a_second(
    seconds: float, told: bool
) -> None:
    view = flapping((seconds,))
    down = view.fleet.events[0]
    fleet = made_fleet(down, seen_ns=down.at_ns + round(seconds * SECOND_NS))
    assert bool(found_in(replace(view, fleet=replace(fleet, moved_ns=fleet.seen_ns)))) is told


def test_link_loss_on_a_host_without_ranks_is_not_reported() -> None:
    view = job()
    assert view.step_start_ns is not None
    stopped_ns = int(view.step_start_ns[-1] + view.step_ns[-1])
    down = made_event(Happening.LINK_DOWN, "storage", "eth0", at_ns=stopped_ns)
    fleet = replace(made_fleet(down, seen_ns=stopped_ns + 9 * SECOND_NS), moved_ns=stopped_ns)
    assert found_in(replace(view, fleet=fleet)) == []


def test_link_events_are_paired_into_outages_even_if_some_are_missing() -> None:
    names = [
        ("link-up", 1, ""), ("link-down", 2, ""), ("link-down", 3, ""), ("link-up", 5, ""), ("link-flaps", 9, "4"),
        ("link-flaps", 12, "?"), ("link-taken-down", 20, ""), ("link-up", 21, ""), ("device-gone", 30, ""),
    ]  # fmt: skip
    events = [made_event(name, "h", "eth0", at_ns=at * SECOND_NS, text=text) for name, at, text in names]
    found = find_outages(reversed(events))
    assert [(one.down_ns // SECOND_NS, one.up_ns // SECOND_NS, one.count) for one in found] == [
        (2, 5, 1), (7, 9, 4), (10, 12, 1), (20, 21, 1), (30, 0, 1),
    ]  # fmt: skip
    assert [one.is_exact for one in found] == [True, False, False, True, True]


def test_port_already_down_when_sampling_began_is_not_an_outage() -> None:
    idle = made_event(
        Happening.LINK_DOWN, "h", "eth1", at_ns=SECOND_NS, text=f"{LINK_ALREADY_DOWN} when sampling began"
    )
    assert find_outages([idle]) == []
    lost = made_event(Happening.LINK_DOWN, "h", "eth1", at_ns=0)
    assert [one.down_ns for one in find_outages([lost, idle])] == [0]


def test_invalid_settings_raise_a_usage_error() -> None:
    assert DetectorSettings.from_environment({"RANKSCOPE_FLAPS": "5"}).flaps == 5
    with pytest.raises(UsageError, match="RANKSCOPE_LONG_FLAP_S is 'soon'"):
        DetectorSettings.from_environment({"RANKSCOPE_LONG_FLAP_S": "soon"})
    with pytest.raises(UsageError, match="RANKSCOPE_FLAPS is 0"):
        DetectorSettings.from_environment({"RANKSCOPE_FLAPS": "0"})


@pytest.mark.parametrize("at_ns", [2**63 - 1, -5], ids=["far ahead", "before time began"])
def test_host_with_a_wrong_clock_does_not_hide_the_card_of_another_host(at_ns: int) -> None:
    view = flapping((3.0, 3.0, 3.0))
    seen_ns = view.fleet.events[-1].at_ns + 60 * SECOND_NS
    mad = made_event(Happening.LINK_DOWN, "h0", "eth0", at_ns=at_ns)
    assert only(replace(view, fleet=made_fleet(*view.fleet.events, mad, seen_ns=seen_ns))).hosts == ["h2"]


def test_endlessly_flapping_idle_port_does_not_hide_another_card() -> None:
    view = flapping((3.0, 3.0, 3.0))
    last_ns = view.fleet.events[-1].at_ns
    idle = [
        made_event(name, "h0", "eth7", at_ns=last_ns + (2 * number + half) * 1_000_000)
        for number in range(250)
        for half, name in enumerate((Happening.LINK_DOWN, Happening.LINK_UP))
    ]
    words = ({"backend": "gloo", "GLOO_SOCKET_IFNAME": "eth0"},) * 8
    assert only(replace(view, fleet=made_fleet(*view.fleet.events, *idle), meta=words)).hosts == ["h2"]


@each_case("text", ["²", "9" * 5_000, "-3", "3.5", ""])
def test_invalid_flap_count_counts_as_one(text: str) -> None:
    (found,) = find_outages([made_event(Happening.LINK_FLAPS, "h", "eth0", at_ns=SECOND_NS, text=text)])
    assert found.count == 1


def test_lost_gpu_is_not_a_network_outage() -> None:
    assert find_outages([made_event(Happening.DEVICE_GONE, "h", "gpu3", at_ns=SECOND_NS)]) == []


@pytest.mark.parametrize("skew_s", [-4.0, 4.0])
def test_ranks_on_hosts_with_skewed_clocks_are_still_listed_as_suspects(skew_s: float) -> None:
    view = flapping((3.0, 3.0, 3.0))
    stage = Stage.GRADS_REDUCE_SCATTER
    start_ns = view.operations[stage].start_ns.copy()
    start_ns[:, :, [rank for rank, host in enumerate(HOSTS) if host != "h2"]] += round(skew_s * SECOND_NS)
    skewed = replace(view, operations={stage: replace(view.operations[stage], start_ns=start_ns)})
    finding = only(skewed)
    assert finding.hosts == ["h2"]
    assert len(finding.suspects) == len(HOSTS)


def test_frequent_stalls_of_operations_are_not_attributed_to_flaps() -> None:
    stalls = dict.fromkeys(range(0, NUM_STEPS, 3), 1.0)
    assert found_in(flaps(job(held=stalls), "h2", {row: 0.9 for row in (3, 9, 15)})) == []


def test_text_of_a_delayed_transfer_names_its_two_ends_and_of_a_collective_its_group() -> None:
    outage = Outage(host="h0", device="eth0", down_ns=1, up_ns=2)
    transfer = Stretched(stage=Stage.BACKWARD_SEND, ranks=(1, 5), step=7, held_s=3.1)
    collective = Stretched(stage=Stage.GRADS_ALL_REDUCE, ranks=(0, 4), step=7, held_s=2.0)
    effect = Effect(outage=outage, stretched=(transfer, collective), held_up=(0, 1, 4, 5), held_s=3.1, steps=(7,))
    assert describe_stretched([effect]) == [
        "backward-send between ranks 1 and 5 took 3.1 s longer in step 7",
        "grads-all-reduce of ranks 0, 4 took 2.0 s longer in step 7",
    ]
