"""Samples from the real NVML: plausible values in the stored units."""

from collections.abc import Iterator
from time import process_time, time_ns

import pynvml
import pytest

from telemetry.agent.samplers.nvml import NvmlSampler, open_nvml_sampler
from telemetry.host_metrics import Happening, Metric
from tests.deadline import until

SECOND_NS = 1_000_000_000


def _has_driver() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    pynvml.nvmlShutdown()
    return True


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not _has_driver(), reason="no NVIDIA driver")]
LIMITS = {
    Metric.GPU_POWER_W: (10, 1500),
    Metric.GPU_SM_CLOCK_MHZ: (100, 4000),
    Metric.GPU_MEMORY_CLOCK_MHZ: (100, 20_000),
    Metric.GPU_TEMPERATURE_C: (5, 110),
    Metric.GPU_MEMORY_TEMPERATURE_C: (0, 120),
    Metric.GPU_UTILIZATION: (0, 1),
    Metric.GPU_MEMORY_TOTAL_BYTES: (2**32, 2**40),
    Metric.GPU_MEMORY_USED_BYTES: (0, 2**40),
    Metric.GPU_REMAP_PENDING: (0, 1),
    Metric.GPU_REMAP_FAILED: (0, 1),
    Metric.GPU_RECOVERY_ACTION: (0, 10),
}


@pytest.fixture
def sampler() -> Iterator[NvmlSampler]:
    opened = open_nvml_sampler(pynvml, samples_a_health_check=1)
    assert opened is not None
    yield opened
    opened.close()


def test_every_sampled_value_is_within_the_limits_of_a_gpu(sampler: NvmlSampler) -> None:
    readings = sampler.sample(time_ns()).readings
    for one in readings:
        least, most = LIMITS.get(Metric(one.metric), (0, float("inf")))
        assert least <= one.value <= most, one
    told = {one.metric for one in readings}
    assert {Metric.GPU_SM_CLOCK_MHZ, Metric.GPU_TEMPERATURE_C, Metric.GPU_MEMORY_TOTAL_BYTES} <= told


def test_each_gpu_reports_a_uuid_in_the_form_of_the_driver(sampler: NvmlSampler) -> None:
    seen = [event for event in sampler.sample(time_ns()).events if event.name == Happening.GPU_SEEN]
    assert seen
    assert all(event.text.startswith("GPU-") for event in seen)


def test_throttle_counters_grow_no_faster_than_time(sampler: NvmlSampler) -> None:
    """Counters in microseconds, or of power smoothing, grow at another rate."""
    began_ns = time_ns()
    before = {(one.device, one.metric): one.value for one in sampler.sample(began_ns).readings if one.is_counter}
    until(lambda: time_ns() - began_ns > 2 * SECOND_NS, what="two seconds pass")
    after = sampler.sample(time_ns()).readings
    passed_ns = time_ns() - began_ns
    for one in after:
        if one.metric.startswith("gpu-throttle"):
            grown = one.value - before[one.device, one.metric]
            assert 0 <= grown <= 1.2 * passed_ns, one


def test_one_sample_of_a_gpu_costs_less_than_two_milliseconds_of_processor_time() -> None:
    """With one sample a second, eight GPUs then cost less than 2% of one core. An H200 took 1.1 ms."""
    opened = open_nvml_sampler(pynvml)
    assert opened is not None
    opened.sample(time_ns())
    began = process_time()
    for _ in range(100):
        opened.sample(time_ns())
    cost_s = (process_time() - began) / 100 / pynvml.nvmlDeviceGetCount()
    opened.close()
    print(f"{cost_s * 1e6:.0f} us of processor time for a sample of a GPU")
    assert cost_s < 0.002
