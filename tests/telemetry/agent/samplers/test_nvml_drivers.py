"""NVML libraries and drivers that lack functions. Values that are available are still read."""

import pynvml
import pytest

from telemetry.agent.samplers.nvml import open_nvml_sampler
from telemetry.host_metrics import Happening, Metric
from tests.telemetry.agent.samplers.opened_nvml import AT_NS, opened, told, values
from tests.telemetry.agent.samplers.scripted_nvml import ScriptedGpu, ScriptedNvml, h100s


def test_older_nvml_functions_are_used_when_field_values_are_missing() -> None:
    nvml = ScriptedNvml(h100s(1), missing=["nvmlDeviceGetFieldValues", "nvmlDeviceGetTemperatureV"])
    seen = values(opened(nvml).sample(AT_NS), "gpu0")
    assert seen[Metric.GPU_POWER_W] == 650.0
    assert seen[Metric.GPU_TEMPERATURE_C] == 61
    assert seen[Metric.GPU_ECC_CORRECTED] == 4
    assert seen[Metric.GPU_REMAPPED_ROWS_CORRECTED] == 1
    assert seen[Metric.GPU_PCIE_REPLAYS] == 2
    assert Metric.GPU_THROTTLE_POWER_NS not in seen


HALF = frozenset(
    {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetSupportedEventTypes",
        "nvmlDeviceGetUUID",
        *(f"field {number}" for number in (75, 77, 82, 94, 143, 145, 161, 162, 163, 230, 269)),
    }
)


def test_unsupported_gpu_values_are_left_out_and_not_queried_again() -> None:
    nvml = ScriptedNvml([ScriptedGpu(index=0, lacks=HALF)])
    sampler = opened(nvml)
    nvml.calls.clear()
    sample = sampler.sample(AT_NS)
    assert {"gpu-power-w", "gpu-sm-clock-mhz", "gpu-ecc-corrected", "gpu-throttle-power-ns"} <= values(
        sample, "gpu0"
    ).keys()
    assert "gpu-temperature-c" not in values(sample, "gpu0")
    assert not HALF & set(nvml.calls)
    assert told(sample) == [("gpu0", Happening.GPU_SEEN, "")]


def test_unexpected_answer_of_one_nvml_call_leaves_out_only_its_own_values(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = ScriptedNvml(h100s(1))
    nvml.gpus[0].lacks = frozenset(f"field {number}" for number in (142, 143, 144, 145))
    monkeypatch.setattr(nvml, "nvmlDeviceGetRemappedRows", lambda gpu: (1, 0, 0, 0, "histogram"))
    seen = values(opened(nvml).sample(AT_NS), "gpu0")
    assert Metric.GPU_REMAP_PENDING not in seen
    assert seen[Metric.GPU_ECC_UNCORRECTED] == 0
    assert seen[Metric.GPU_PCIE_REPLAYS] == 2


def test_gpu_readings_are_reported_without_permission_for_events() -> None:
    nvml = ScriptedNvml(h100s(1), events_allowed=False)
    nvml.gpus[0].report_xid(79)
    sample = opened(nvml).sample(AT_NS)
    assert values(sample, "gpu0")[Metric.GPU_POWER_W] == 650.0
    assert [name for _, name, _ in told(sample)] == [Happening.GPU_SEEN]


def test_gpu_is_read_when_the_driver_lacks_events_and_newer_functions() -> None:
    nvml = ScriptedNvml(
        h100s(1),
        driver="470.57.02",
        missing=[
            "nvmlEventSetCreate",
            "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetTemperatureV",
            "nvmlDeviceGetRemappedRows",
            "nvmlSystemGetDriverVersion",
        ],
    )
    assert values(opened(nvml).sample(AT_NS), "gpu0")[Metric.GPU_SM_CLOCK_MHZ] == 1980


def test_gpu_without_permission_is_left_out_and_other_gpus_keep_their_names() -> None:
    gpus = h100s(3)
    gpus[1].hidden = True
    sample = opened(ScriptedNvml(gpus)).sample(AT_NS)
    assert {one.device for one in sample.readings} == {"gpu0", "gpu2"}


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_no_nvml_sampler_is_opened_without_a_driver(error: int) -> None:
    assert open_nvml_sampler(ScriptedNvml([], init_error=error)) is None


def test_no_nvml_sampler_is_opened_without_a_gpu_and_the_library_is_shut_down() -> None:
    nvml = ScriptedNvml([])
    assert open_nvml_sampler(nvml) is None
    assert nvml.inits == 0


def test_the_real_library_without_a_driver_gives_no_sampler() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert open_nvml_sampler(pynvml) is None
    else:
        pynvml.nvmlShutdown()
        pytest.skip("there is a driver: see tests/gpu/test_nvml_real.py")
