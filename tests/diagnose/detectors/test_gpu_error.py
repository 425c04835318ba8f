from dataclasses import replace

import numpy as np

from diagnose.detectors.gpu_error import detect_gpu_errors
from diagnose.findings import Finding, Kind, Role, Severity
from diagnose.model.fleet import HostEvent
from diagnose.model.view import RunView
from telemetry.host_metrics import Happening, Metric
from telemetry.topology import Topology
from tests.diagnose.made_fleet import (
    BEGAN_NS,
    SECOND_NS,
    MadeSeries,
    looks_over,
    made_event,
    made_fleet,
    made_series,
    timed,
)
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

GRID = Topology(dp=4, pp=2, tp=2)
HOST = "gpu-00"
ASSUMED = timed(make_view(GRID, num_steps=60))
VIEW = replace(ASSUMED, meta=tuple({"device": "cuda", "gpu_uuid": f"GPU-{rank}"} for rank in range(GRID.world_size)))
"""Each rank of ``VIEW`` records its GPU. The ranks of ``ASSUMED`` record none."""
SEEN = tuple(
    made_event(Happening.GPU_SEEN, f"gpu-{rank // 8:02d}", f"gpu{rank % 8}", at_ns=1, text=f"GPU-{rank}")
    for rank in range(GRID.world_size)
)
AT_NS = BEGAN_NS + 3 * SECOND_NS
LOOKS = looks_over(VIEW)


def with_parts(*parts: MadeSeries | HostEvent, view: RunView = VIEW) -> RunView:
    return replace(view, fleet=made_fleet(*SEEN, *parts))


def xid(number: int, rank: int, *, at_ns: int = AT_NS) -> HostEvent:
    host, device = f"gpu-{rank // 8:02d}", f"gpu{rank % 8}"
    return made_event(Happening.GPU_XID, host, device, at_ns=at_ns, text=f"{number} as the driver words it")


def gone(rank: int) -> HostEvent:
    host, device = f"gpu-{rank // 8:02d}", f"gpu{rank % 8}"
    return made_event(Happening.DEVICE_GONE, host, device, at_ns=AT_NS + SECOND_NS, text="the GPU is lost")


def state(metric: str, rank: int, value: float, *, from_look: int = 5) -> MadeSeries:
    values = np.where(np.arange(len(LOOKS)) >= from_look, value, 0.0)
    return made_series(metric, f"gpu-{rank // 8:02d}", f"gpu{rank % 8}", LOOKS, values)


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    assert finding.kind is Kind.GPU_ERROR
    return finding


def quiet_counters(seed: int) -> list[MadeSeries]:
    """Counters of healthy GPUs over a day: corrected errors, replays, a few link errors, rows remapped long ago."""
    random = np.random.default_rng(seed)
    parts = []
    for rank in range(GRID.world_size):
        parts.append(state(Metric.GPU_ECC_CORRECTED, rank, float(random.poisson(1.0))))
        parts.append(state(Metric.GPU_NVLINK_ERRORS, rank, float(random.poisson(20.0))))
        parts.append(state(Metric.GPU_PCIE_REPLAYS, rank, float(random.poisson(3.0))))
        parts.append(state(Metric.GPU_ECC_UNCORRECTED, rank, 2.0, from_look=0))
        parts.append(state(Metric.GPU_REMAPPED_ROWS_UNCORRECTED, rank, 1.0, from_look=0))
        parts.append(state(Metric.GPU_REMAP_PENDING, rank, 0.0))
    return parts


@over_seeds(range(50))
def test_healthy_gpus_yield_nothing(seed: int) -> None:
    assert detect_gpu_errors(with_parts(*quiet_counters(seed))) == []


def test_a_single_corrected_memory_error_yields_nothing() -> None:
    assert detect_gpu_errors(with_parts(state(Metric.GPU_ECC_CORRECTED, 5, 1.0))) == []


@over_seeds(range(10))
def test_only_the_gpu_that_fell_off_the_bus_is_named_with_its_rank(seed: int) -> None:
    rank = int(np.random.default_rng(seed).integers(GRID.world_size))
    finding = only(detect_gpu_errors(with_parts(*quiet_counters(seed), xid(79, rank), gone(rank))))
    assert finding.ranks == [rank]
    assert finding.severity is Severity.CRITICAL
    assert finding.evidence["gpus"] == [f"gpu-{rank // 8:02d}/gpu{rank % 8}"]
    assert finding.evidence["xids"] == [79]
    assert "Xid 79 (the GPU fell off the bus)" in finding.summary
    assert "power-cycle it" in finding.next_step


def test_all_faults_of_a_gpu_are_one_finding_with_the_most_severe_first() -> None:
    finding = only(
        detect_gpu_errors(
            with_parts(
                xid(31, 5, at_ns=AT_NS - SECOND_NS),
                xid(48, 5),
                xid(48, 5, at_ns=AT_NS + 1),
                xid(63, 5),
                xid(45, 5),
                made_event(Happening.GPU_ERROR, HOST, "gpu5", at_ns=AT_NS, text="uncorrectable memory error"),
                state(Metric.GPU_ECC_UNCORRECTED, 5, 1.0),
                state(Metric.GPU_REMAP_PENDING, 5, 1.0),
            )
        )
    )
    assert finding.ranks == [5]
    assert finding.severity is Severity.CRITICAL
    assert finding.evidence["xids"] == [31, 45, 48]
    assert finding.summary.count("Xid 48") == 1
    assert (
        finding.summary.index("Xid 48")
        < finding.summary.index("memory rows are remapped")
        < finding.summary.index("Xid 31")
    )


@each_case(
    ("action", "words", "to_do"),
    [
        (2, "requests a reboot of the host", "power-cycle it"),
        (4, "requests a reset of the GPU after its peer-to-peer traffic has ended", "reset the GPU"),
        (6, "requests a reset of the GPU's PCIe bus", "reset the GPU"),
        (7, "requests a reboot of the host", "power-cycle it"),
        (12, "requests recovery action 12", "contact the vendor"),
    ],
)
def test_recovery_action_of_the_gpu_driver_is_in_the_summary_and_the_next_step(
    action: int, words: str, to_do: str
) -> None:
    finding = only(detect_gpu_errors(with_parts(state(Metric.GPU_RECOVERY_ACTION, 9, float(action)))))
    assert words in finding.summary
    assert to_do in finding.next_step


@each_case(
    ("metric", "words", "to_do"),
    [
        (Metric.GPU_ECC_UNCORRECTED, "1 uncorrected memory errors", "reset the GPU"),
        (Metric.GPU_REMAP_PENDING, "memory rows are remapped at the next reset", "reset the GPU"),
        (Metric.GPU_REMAP_FAILED, "a memory row could not be remapped", "contact the vendor"),
        (Metric.GPU_RECOVERY_ACTION, "the driver requests a reset of the GPU", "reset the GPU"),
    ],
)
def test_gpu_state_that_needs_an_action_is_a_warning_with_cause_and_next_step(
    metric: str, words: str, to_do: str
) -> None:
    finding = only(detect_gpu_errors(with_parts(state(metric, 9, 1.0))))
    assert finding.ranks == [9]
    assert finding.severity is Severity.WARNING
    assert words in finding.summary
    assert to_do in finding.next_step
    assert [suspect.role for suspect in finding.suspects] == [Role.INITIATING]


def test_row_remap_pending_since_before_the_first_step_is_reported() -> None:
    before = np.concatenate([np.arange(-30, 0) * SECOND_NS + BEGAN_NS, LOOKS])
    finding = only(detect_gpu_errors(with_parts(made_series(Metric.GPU_REMAP_PENDING, HOST, "gpu5", before, 1.0))))
    assert finding.window.first_step == 100


def test_gpu_with_far_more_link_errors_than_others_is_a_warning() -> None:
    finding = only(detect_gpu_errors(with_parts(*quiet_counters(0)[3:], state(Metric.GPU_NVLINK_ERRORS, 0, 5000.0))))
    assert finding.ranks == [0]
    assert finding.severity is Severity.WARNING
    assert "5000 NVLink errors" in finding.summary


@over_seeds(range(10))
def test_link_errors_on_all_gpus_yield_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    parts = [state(Metric.GPU_NVLINK_ERRORS, rank, float(random.lognormal(5, 1))) for rank in range(GRID.world_size)]
    assert detect_gpu_errors(with_parts(*parts)) == []


@each_case("number", [13, 31, 43])
def test_xid_that_the_application_may_cause_is_info_and_says_so(number: int) -> None:
    finding = only(detect_gpu_errors(with_parts(xid(number, 5))))
    assert finding.ranks == [5]
    assert finding.severity is Severity.INFO
    assert "the application may be the cause" in finding.summary
    assert "check the application first" in finding.next_step


def test_same_application_xid_on_many_gpus_is_one_finding() -> None:
    faults = [xid(31, rank, at_ns=AT_NS + (rank != 6) * SECOND_NS) for rank in range(16)]
    finding = only(detect_gpu_errors(with_parts(*faults)))
    assert finding.ranks == list(range(16))
    assert "first on rank 6" in finding.summary


def test_xid_of_preemptive_cleanup_on_all_gpus_yields_nothing() -> None:
    assert detect_gpu_errors(with_parts(*(xid(45, rank) for rank in range(16)))) == []


@each_case("number", [63, 92, 106, 154])
def test_informational_xid_yields_nothing(number: int) -> None:
    assert detect_gpu_errors(with_parts(xid(number, 5))) == []


def test_application_xids_after_a_lost_gpu_are_not_reported() -> None:
    aftermath = [xid(number, rank, at_ns=AT_NS + 20 * SECOND_NS) for rank in range(16) for number in (43, 45)]
    assert only(detect_gpu_errors(with_parts(xid(79, 2), *aftermath))).ranks == [2]


def test_nvlink_errors_of_neighbours_are_attributed_to_the_lost_gpu() -> None:
    broken = [xid(74, rank, at_ns=AT_NS + SECOND_NS) for rank in (0, 1, 3)]
    finding = only(detect_gpu_errors(with_parts(xid(79, 2), gone(2), *broken)))
    assert finding.ranks == [2]
    assert "causes the NVLink errors of its neighbours" in finding.summary


def test_nvlink_xid_without_a_lost_gpu_is_critical() -> None:
    finding = only(detect_gpu_errors(with_parts(xid(74, 3))))
    assert (finding.ranks, finding.severity) == ([3], Severity.CRITICAL)
    assert "nvidia-smi nvlink" in finding.next_step


def test_unknown_xid_is_a_warning_with_the_text_of_the_driver() -> None:
    finding = only(detect_gpu_errors(with_parts(xid(4711, 5))))
    assert finding.severity is Severity.WARNING
    assert "Xid 4711 (as the driver words it)" in finding.summary


@each_case(("number", "minutes_before", "told"), [(79, 2, True), (79, 30, False), (64, 2, False), (31, 2, False)])
def test_xid_before_the_first_step_is_reported_only_if_fatal_and_recent(
    number: int, minutes_before: int, told: bool
) -> None:
    early = xid(number, 5, at_ns=BEGAN_NS - minutes_before * 60 * SECOND_NS)
    assert bool(detect_gpu_errors(with_parts(early))) == told


def test_finding_gives_the_step_in_which_the_fault_occurred() -> None:
    view = VIEW
    assert view.step_start_ns is not None
    finding = only(detect_gpu_errors(with_parts(xid(79, 5, at_ns=int(view.step_start_ns[20]) + 1000))))
    assert "in step 120" in finding.summary
    assert (finding.window.first_step, finding.window.last_step) == (120, 159)
    after = only(detect_gpu_errors(with_parts(xid(79, 5, at_ns=int(view.step_start_ns[-1]) + 60 * SECOND_NS))))
    assert "after step 159" in after.summary


def test_fault_of_a_gpu_that_the_job_does_not_use_yields_nothing() -> None:
    view = timed(make_view(Topology(dp=4), num_steps=60))
    assert detect_gpu_errors(with_parts(xid(79, 6), view=view)) == []


def test_gpu_fault_is_ignored_for_a_job_on_cpus() -> None:
    view = replace(VIEW, meta=({"device": "cpu"},) * GRID.world_size)
    assert detect_gpu_errors(with_parts(xid(79, 5), view=view)) == []


def test_host_is_named_without_a_rank_when_the_rank_of_the_gpu_is_unknown() -> None:
    view = replace(VIEW, meta=({"device": "cuda", "gpu_uuid": "MIG-of-some-gpu"},) * GRID.world_size)
    finding = only(detect_gpu_errors(with_parts(xid(79, 5), view=view)))
    assert finding.ranks == []
    assert finding.summary.startswith(f"host {HOST}: gpu5")


def test_gpu_and_host_are_named_without_a_culprit_when_ranks_record_no_gpu() -> None:
    known, assumed = (only(detect_gpu_errors(with_parts(xid(79, 5), view=view))) for view in (VIEW, ASSUMED))
    assert (assumed.ranks, assumed.hosts) == ([], [HOST])
    assert [(one.rank, one.role) for one in assumed.suspects] == [(5, Role.UNKNOWN)]
    assert assumed.summary.startswith(f"host {HOST}: gpu5 (used by rank 5, if GPUs are assigned in rank order): Xid 79")
    assert (assumed.evidence["hosts"], assumed.evidence["gpus"]) == ([HOST], [f"{HOST}/gpu5"])
    assert assumed.next_step.startswith(f"on {HOST}: ")
    assert assumed.confidence < known.confidence


def test_application_xid_names_no_rank_when_ranks_record_no_gpu() -> None:
    finding = only(detect_gpu_errors(with_parts(xid(31, 5), view=ASSUMED)))
    assert finding.ranks == []
    assert "if GPUs are assigned in rank order" in finding.summary


def test_only_rank_of_a_host_is_named_even_if_it_records_no_gpu() -> None:
    view = replace(timed(make_view(Topology(dp=4), num_steps=60)), hosts=("a", "b", "c", "d"))
    lost = made_event(Happening.DEVICE_GONE, "c", "gpu0", at_ns=AT_NS)
    assert only(detect_gpu_errors(with_parts(lost, view=view))).ranks == [2]


def test_gpu_fault_is_reported_in_a_run_without_a_finished_step() -> None:
    empty = np.zeros(0, dtype=np.int64)
    view = replace(VIEW, steps=empty, step_ns=np.zeros(0), step_start_ns=empty, work={})
    assert only(detect_gpu_errors(with_parts(xid(79, 5), view=view))).ranks == [5]


def test_lost_nic_is_not_reported_as_a_gpu_error() -> None:
    nic = made_event(Happening.DEVICE_GONE, HOST, "eth0", at_ns=AT_NS)
    assert detect_gpu_errors(with_parts(nic)) == []
