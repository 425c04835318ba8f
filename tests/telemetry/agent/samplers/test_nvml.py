"""GPUs through a scripted management library."""

from collections import Counter

import pynvml
import pytest

from telemetry.agent.samplers.interface import Event, GoneError
from telemetry.agent.thinning import Thinning
from telemetry.host_metrics import Happening, Metric
from tests.telemetry.agent.samplers.opened_nvml import AT_NS, SECOND_NS, opened, told, values
from tests.telemetry.agent.samplers.scripted_nvml import H100_MEMORY_BYTES, ScriptedNvml, Throttled, h100s


def test_a_healthy_gpu_tells_everything_in_the_units_of_the_metrics() -> None:
    sampler = opened(ScriptedNvml(h100s(8)))
    sample = sampler.sample(AT_NS)
    assert {one.device for one in sample.readings} == {f"gpu{index}" for index in range(8)}
    assert values(sample, "gpu3") == {
        Metric.GPU_THROTTLE_POWER_NS: 10**12,
        Metric.GPU_THROTTLE_THERMAL_NS: 3 * 10**9,
        Metric.GPU_THROTTLE_SYNC_BOOST_NS: 0,
        Metric.GPU_THROTTLE_BOARD_NS: 0,
        Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS: 2 * 10**9,
        Metric.GPU_THROTTLE_HARDWARE_THERMAL_NS: 0,
        Metric.GPU_THROTTLE_POWER_BRAKE_NS: 0,
        Metric.GPU_POWER_W: 650.0,
        Metric.GPU_TEMPERATURE_C: 61,
        Metric.GPU_MEMORY_TEMPERATURE_C: 70,
        Metric.GPU_SM_CLOCK_MHZ: 1980,
        Metric.GPU_MEMORY_CLOCK_MHZ: 2619,
        Metric.GPU_UTILIZATION: 0.97,
        Metric.GPU_MEMORY_USED_BYTES: 70 * 2**30,
        Metric.GPU_MEMORY_TOTAL_BYTES: H100_MEMORY_BYTES,
        Metric.GPU_ECC_CORRECTED: 4,
        Metric.GPU_ECC_UNCORRECTED: 0,
        Metric.GPU_REMAPPED_ROWS_CORRECTED: 1,
        Metric.GPU_REMAPPED_ROWS_UNCORRECTED: 0,
        Metric.GPU_REMAP_PENDING: 0,
        Metric.GPU_REMAP_FAILED: 0,
        Metric.GPU_RECOVERY_ACTION: 0,
        Metric.GPU_PCIE_REPLAYS: 2,
        Metric.GPU_NVLINK_ERRORS: 0,
    }


def test_levels_and_counters_are_told_apart() -> None:
    sample = opened(ScriptedNvml(h100s(1))).sample(AT_NS)
    counters = {one.metric for one in sample.readings if one.is_counter}
    assert Metric.GPU_THROTTLE_POWER_NS in counters
    assert Metric.GPU_ECC_UNCORRECTED in counters
    assert counters.isdisjoint({Metric.GPU_POWER_W, Metric.GPU_SM_CLOCK_MHZ})


def test_each_gpu_says_once_who_it_is() -> None:
    nvml = ScriptedNvml(h100s(2))
    sampler = opened(nvml)
    assert told(sampler.sample(AT_NS)) == [
        ("gpu0", Happening.GPU_SEEN, nvml.gpus[0].uuid),
        ("gpu1", Happening.GPU_SEEN, nvml.gpus[1].uuid),
    ]
    assert sampler.sample(AT_NS + SECOND_NS).events == ()


def test_throttling_is_counted_by_reason_on_the_gpu_that_throttles() -> None:
    nvml = ScriptedNvml(h100s(8))
    sampler = opened(nvml)
    before = sampler.sample(AT_NS)
    for reason in Throttled:
        nvml.gpus[5].throttle(reason, ns=1000 + reason)
    after = sampler.sample(AT_NS + SECOND_NS)
    reasons = (
        Metric.GPU_THROTTLE_POWER_NS,
        Metric.GPU_THROTTLE_THERMAL_NS,
        Metric.GPU_THROTTLE_SYNC_BOOST_NS,
        Metric.GPU_THROTTLE_BOARD_NS,
        Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS,
        Metric.GPU_THROTTLE_HARDWARE_THERMAL_NS,
        Metric.GPU_THROTTLE_POWER_BRAKE_NS,
    )
    for place, metric in enumerate(reasons):
        assert values(after, "gpu5")[metric] - values(before, "gpu5")[metric] == 1000 + place
        assert values(after, "gpu4")[metric] == values(before, "gpu4")[metric]


@pytest.mark.parametrize("driver", ["575.57.08", "580.65.06", "580.82.07", "580.95.05", "590.48.01", "615.78.08"])
def test_renumbered_throttle_counters_are_found_under_every_driver(driver: str) -> None:
    sample = opened(ScriptedNvml(h100s(1), driver=driver)).sample(AT_NS)
    assert values(sample, "gpu0")[Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS] == 2 * 10**9


@pytest.mark.parametrize("driver", ["570.172.08", "535.104.12", "experimental", ""])
def test_small_numbers_of_power_smoothing_are_not_taken_for_throttle_counters(driver: str) -> None:
    seen = values(opened(ScriptedNvml(h100s(1), driver=driver)).sample(AT_NS), "gpu0")
    assert Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS not in seen
    assert seen[Metric.GPU_THROTTLE_POWER_NS] == 10**12


def test_a_gpu_that_falls_off_the_bus_is_told_once_and_the_others_go_on() -> None:
    nvml = ScriptedNvml(h100s(8))
    sampler = opened(nvml)
    sampler.sample(AT_NS)
    nvml.gpus[5].report_xid(79)
    nvml.gpus[5].lose()
    sample = sampler.sample(AT_NS + SECOND_NS)
    assert told(sample)[0] == ("gpu5", Happening.GPU_XID, "79 the GPU fell off the bus")
    assert told(sample)[1][:2] == ("gpu5", Happening.DEVICE_GONE)
    assert len(sample.events) == 2
    assert {one.device for one in sample.readings} == {f"gpu{index}" for index in range(8)} - {"gpu5"}
    assert sampler.sample(AT_NS + 2 * SECOND_NS).events == ()


def test_after_one_gpu_is_lost_events_of_the_others_still_come() -> None:
    nvml = ScriptedNvml(h100s(2))
    sampler = opened(nvml)
    nvml.gpus[0].lose()
    sampler.sample(AT_NS)
    nvml.gpus[1].report_xid(48)
    sample = sampler.sample(AT_NS + SECOND_NS)
    assert sample.events == (
        Event(
            at_ns=AT_NS + SECOND_NS,
            device="gpu1",
            name=Happening.GPU_XID,
            text="48 uncorrectable memory error (double-bit ECC)",
        ),
    )
    assert nvml.open_sets == 1


def test_a_gpu_that_needs_a_reset_is_gone_too() -> None:
    nvml = ScriptedNvml(h100s(2))
    sampler = opened(nvml)
    sampler.sample(AT_NS)
    nvml.gpus[1].need_reset()
    assert told(sampler.sample(AT_NS)) == [("gpu1", Happening.DEVICE_GONE, "the GPU does not work until it is reset")]


def test_when_every_gpu_is_lost_the_sampler_is_gone() -> None:
    nvml = ScriptedNvml(h100s(2))
    sampler = opened(nvml)
    sampler.sample(AT_NS)
    for gpu in nvml.gpus:
        gpu.lose()
    assert [name for _, name, _ in told(sampler.sample(AT_NS))] == [Happening.DEVICE_GONE] * 2
    with pytest.raises(GoneError):
        sampler.sample(AT_NS)


def test_errors_of_memory_are_read_at_once_after_an_event_although_no_health_check_is_due() -> None:
    nvml = ScriptedNvml(h100s(2))
    sampler = opened(nvml)
    sampler.sample(AT_NS)
    nvml.gpus[1].ecc[1] += 1
    nvml.gpus[1].remapped[1:3] = [1, 1]
    nvml.gpus[1].recovery_action = pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    nvml.gpus[1].report_xid(63)
    nvml.gpus[1].report(pynvml.nvmlEventTypeDoubleBitEccError)
    sample = sampler.sample(AT_NS + SECOND_NS)
    assert told(sample) == [
        ("gpu1", Happening.GPU_XID, "63 a memory row was marked for remapping"),
        ("gpu1", Happening.GPU_ERROR, "uncorrectable memory error"),
    ]
    seen = values(sample, "gpu1")
    assert (seen[Metric.GPU_ECC_UNCORRECTED], seen[Metric.GPU_REMAP_PENDING]) == (1, 1)
    assert seen[Metric.GPU_RECOVERY_ACTION] == 1
    assert Metric.GPU_ECC_UNCORRECTED not in values(sample, "gpu0")


def test_a_state_that_changes_within_a_window_is_shipped_as_it_stands() -> None:
    nvml, thinning = ScriptedNvml(h100s(1)), Thinning()
    sampler = opened(nvml)
    thinning.add(AT_NS, sampler.sample(AT_NS).readings)
    nvml.gpus[0].recovery_action = pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT
    nvml.gpus[0].report_xid(79)
    thinning.add(AT_NS + SECOND_NS, sampler.sample(AT_NS + SECOND_NS).readings)
    shipped = {one.metric: one.value for one in thinning.end()}
    assert shipped[Metric.GPU_RECOVERY_ACTION] == pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT == 2


def test_a_value_of_a_type_that_nobody_knows_is_left_out() -> None:
    nvml = ScriptedNvml(h100s(1))
    nvml.strange_types = {186: 99}
    seen = values(opened(nvml).sample(AT_NS), "gpu0")
    assert seen[Metric.GPU_POWER_W] == 650  # by the function in its place
    assert Metric.GPU_THROTTLE_POWER_NS in seen


def test_link_errors_are_summed_over_the_links() -> None:
    nvml = ScriptedNvml(h100s(1))
    nvml.gpus[0].link_replays[:3] = [5, 0, 7]
    assert values(opened(nvml).sample(AT_NS), "gpu0")[Metric.GPU_NVLINK_ERRORS] == 12


def test_a_link_that_no_longer_answers_hides_the_sum_instead_of_shrinking_it() -> None:
    nvml = ScriptedNvml(h100s(1))
    nvml.gpus[0].link_replays[17] = 9
    sampler = opened(nvml, samples_a_health_check=1)
    assert values(sampler.sample(AT_NS), "gpu0")[Metric.GPU_NVLINK_ERRORS] == 9
    nvml.gpus[0].links = 17
    assert Metric.GPU_NVLINK_ERRORS not in values(sampler.sample(AT_NS), "gpu0")


def test_closing_twice_lets_go_once() -> None:
    nvml = ScriptedNvml(h100s(1))
    sampler = opened(nvml)
    sampler.close()
    sampler.close()
    assert (nvml.inits, nvml.open_sets) == (0, 0)


def test_a_look_makes_four_calls_a_gpu_and_six_with_a_health_check() -> None:
    nvml = ScriptedNvml(h100s(8))
    sampler = opened(nvml)
    counts = []
    for second in range(11):
        nvml.calls.clear()
        sampler.sample(AT_NS + second * SECOND_NS)
        counts.append(Counter(name for name in nvml.calls if name.startswith("nvmlDevice")).total())
    assert counts == [48, *[32] * 9, 48]
    assert nvml.calls.count("nvmlEventSetWait_v2") == 1


def test_a_storm_of_events_is_taken_in_bounded_looks_and_none_is_lost() -> None:
    nvml = ScriptedNvml(h100s(1))
    sampler = opened(nvml)
    sampler.sample(AT_NS)
    for _ in range(500):
        nvml.gpus[0].report_xid(31)
    counts = [len(sampler.sample(AT_NS + second).events) for second in range(4)]
    assert counts == [200, 200, 100, 0]
