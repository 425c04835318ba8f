"""GPUs read through a scripted NVML library."""

from collections import Counter

import pynvml
import pytest

from telemetry.agent.samplers.interface import Event, GoneError
from telemetry.agent.thinning import Thinning
from telemetry.host_metrics import Happening, Metric
from tests.each_case import each_case
from tests.telemetry.agent.samplers.opened_nvml import AT_NS, SECOND_NS, opened, told, values
from tests.telemetry.agent.samplers.scripted_nvml import H100_MEMORY_BYTES, ScriptedNvml, Throttled, h100s


def test_all_metrics_of_a_healthy_gpu_are_reported_in_their_units() -> None:
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


def test_levels_and_counters_are_distinguished() -> None:
    sample = opened(ScriptedNvml(h100s(1))).sample(AT_NS)
    counters = {one.metric for one in sample.readings if one.is_counter}
    assert Metric.GPU_THROTTLE_POWER_NS in counters
    assert Metric.GPU_ECC_UNCORRECTED in counters
    assert counters.isdisjoint({Metric.GPU_POWER_W, Metric.GPU_SM_CLOCK_MHZ})


def test_uuid_of_each_gpu_is_reported_once() -> None:
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


@each_case("driver", ["575.57.08", "580.65.06", "580.82.07", "580.95.05", "590.48.01", "615.78.08"])
def test_renumbered_throttle_counters_are_found_under_every_driver(driver: str) -> None:
    sample = opened(ScriptedNvml(h100s(1), driver=driver)).sample(AT_NS)
    assert values(sample, "gpu0")[Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS] == 2 * 10**9


@each_case("driver", ["570.172.08", "535.104.12", "experimental", ""])
def test_power_smoothing_fields_are_not_read_as_throttle_counters(driver: str) -> None:
    seen = values(opened(ScriptedNvml(h100s(1), driver=driver)).sample(AT_NS), "gpu0")
    assert Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS not in seen
    assert seen[Metric.GPU_THROTTLE_POWER_NS] == 10**12


def test_gpu_that_falls_off_the_bus_is_reported_once_and_other_gpus_are_still_read() -> None:
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


def test_events_of_other_gpus_are_reported_after_one_gpu_is_lost() -> None:
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


def test_gpu_that_needs_a_reset_is_reported_as_gone() -> None:
    nvml = ScriptedNvml(h100s(2))
    sampler = opened(nvml)
    sampler.sample(AT_NS)
    nvml.gpus[1].need_reset()
    assert told(sampler.sample(AT_NS)) == [("gpu1", Happening.DEVICE_GONE, "the GPU does not work until it is reset")]


def test_nvml_sampler_raises_gone_error_when_every_gpu_is_lost() -> None:
    nvml = ScriptedNvml(h100s(2))
    sampler = opened(nvml)
    sampler.sample(AT_NS)
    for gpu in nvml.gpus:
        gpu.lose()
    assert [name for _, name, _ in told(sampler.sample(AT_NS))] == [Happening.DEVICE_GONE] * 2
    with pytest.raises(GoneError):
        sampler.sample(AT_NS)


def test_memory_errors_are_read_immediately_after_an_event_before_the_next_health_check() -> None:
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


def test_last_value_of_a_gpu_state_is_shipped_when_it_changes_within_a_window() -> None:
    nvml, thinning = ScriptedNvml(h100s(1)), Thinning()
    sampler = opened(nvml)
    thinning.add(AT_NS, sampler.sample(AT_NS).readings)
    nvml.gpus[0].recovery_action = pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT
    nvml.gpus[0].report_xid(79)
    thinning.add(AT_NS + SECOND_NS, sampler.sample(AT_NS + SECOND_NS).readings)
    shipped = {one.metric: one.value for one in thinning.end()}
    assert shipped[Metric.GPU_RECOVERY_ACTION] == pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT == 2


def test_power_is_read_by_an_older_function_when_the_type_of_its_field_value_is_unknown() -> None:
    nvml = ScriptedNvml(h100s(1))
    nvml.strange_types = {186: 99}
    seen = values(opened(nvml).sample(AT_NS), "gpu0")
    assert seen[Metric.GPU_POWER_W] == 650  # read by the older function
    assert Metric.GPU_THROTTLE_POWER_NS in seen


def test_nvlink_errors_are_summed_over_all_links() -> None:
    nvml = ScriptedNvml(h100s(1))
    nvml.gpus[0].link_replays[:3] = [5, 0, 7]
    assert values(opened(nvml).sample(AT_NS), "gpu0")[Metric.GPU_NVLINK_ERRORS] == 12


def test_nvlink_error_sum_is_left_out_when_one_link_no_longer_answers() -> None:
    nvml = ScriptedNvml(h100s(1))
    nvml.gpus[0].link_replays[17] = 9
    sampler = opened(nvml, samples_a_health_check=1)
    assert values(sampler.sample(AT_NS), "gpu0")[Metric.GPU_NVLINK_ERRORS] == 9
    nvml.gpus[0].links = 17
    assert Metric.GPU_NVLINK_ERRORS not in values(sampler.sample(AT_NS), "gpu0")


def test_closing_the_sampler_twice_releases_nvml_once() -> None:
    nvml = ScriptedNvml(h100s(1))
    sampler = opened(nvml)
    sampler.close()
    sampler.close()
    assert (nvml.inits, nvml.open_sets) == (0, 0)


def test_sample_makes_four_nvml_calls_per_gpu_and_six_with_a_health_check() -> None:
    nvml = ScriptedNvml(h100s(8))
    sampler = opened(nvml)
    counts = []
    for second in range(11):
        nvml.calls.clear()
        sampler.sample(AT_NS + second * SECOND_NS)
        counts.append(Counter(name for name in nvml.calls if name.startswith("nvmlDevice")).total())
    assert counts == [48, *[32] * 9, 48]
    assert nvml.calls.count("nvmlEventSetWait_v2") == 1


def test_many_events_are_spread_over_several_samples_and_none_is_lost() -> None:
    nvml = ScriptedNvml(h100s(1))
    sampler = opened(nvml)
    sampler.sample(AT_NS)
    for _ in range(500):
        nvml.gpus[0].report_xid(31)
    counts = [len(sampler.sample(AT_NS + second).events) for second in range(4)]
    assert counts == [200, 200, 100, 0]
