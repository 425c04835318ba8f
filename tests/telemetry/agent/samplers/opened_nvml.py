"""A sampler of scripted GPUs, and the content of its samples."""

from telemetry.agent.samplers.interface import Sample
from telemetry.agent.samplers.nvml import NvmlSampler, open_nvml_sampler
from tests.telemetry.agent.samplers.scripted_nvml import ScriptedNvml

SECOND_NS = 1_000_000_000
AT_NS = 1_790_000_000 * SECOND_NS


def opened(nvml: ScriptedNvml, **options: int) -> NvmlSampler:
    sampler = open_nvml_sampler(nvml, **options)
    assert sampler is not None
    return sampler


def values(sample: Sample, device: str) -> dict[str, float]:
    return {str(one.metric): one.value for one in sample.readings if one.device == device}


def told(sample: Sample) -> list[tuple[str, str, str]]:
    return [(event.device, event.name, event.text) for event in sample.events]
