"""The whole path without a GPU: scripted library -> sampler -> thinned rows -> store -> fleet -> finding."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from diagnose.detectors.gpu_error import detect_gpu_errors
from diagnose.detectors.gpu_throttled import detect_gpu_throttled
from diagnose.model.load import load_view
from diagnose.model.view import RunView
from diagnose.simulate.run import Simulation, simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from telemetry.agent.samplers.interface import Event
from telemetry.agent.samplers.nvml import open_nvml_sampler
from telemetry.agent.thinning import HostSample, Thinning
from telemetry.imports.write import StoreTarget
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.tables import HOST_EVENTS, HOST_SAMPLES
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import plan
from tests.memory_store import memory_store
from tests.telemetry.agent.samplers.scripted_nvml import ScriptedNvml, Throttled, h100s
from tests.telemetry.made_rows import insert

SECOND_NS = 1_000_000_000
CULPRIT = 5
SLOW_FROM, NUM_STEPS = 20, 60
Script = Callable[[ScriptedNvml, float], None]
"""What happens to the GPUs in the second before a sample; the share of the run that has passed."""


def healthy(nvml: ScriptedNvml, passed: float) -> None:
    for gpu in nvml.gpus:
        gpu.throttle(Throttled.POWER, ns=30_000_000)


def throttled(nvml: ScriptedNvml, passed: float) -> None:
    healthy(nvml, passed)
    if passed > SLOW_FROM / NUM_STEPS:
        nvml.gpus[CULPRIT].throttle(Throttled.SOFTWARE_THERMAL, ns=800_000_000)
        nvml.gpus[CULPRIT].sm_clock_mhz = 1200


def lost(nvml: ScriptedNvml, passed: float) -> None:
    healthy(nvml, passed)
    if passed > 0.9 and not nvml.gpus[CULPRIT].failure:
        nvml.gpus[CULPRIT].report_xid(79)
        nvml.gpus[CULPRIT].lose()


def recorded(nvml: ScriptedNvml, script: Script, first_ns: int, last_ns: int) -> tuple[list[HostSample], list[Event]]:
    """What an agent ships if it samples every second."""
    sampler, thinning = open_nvml_sampler(nvml), Thinning()
    assert sampler is not None
    samples: list[HostSample] = []
    events: list[Event] = []
    for at_ns in range(first_ns, last_ns + SECOND_NS, SECOND_NS):
        script(nvml, (at_ns - first_ns) / (last_ns - first_ns))
        sample = sampler.sample(at_ns)
        events += sample.events
        samples += thinning.add(at_ns, sample.readings)
    return [*samples, *thinning.end()], events


def put_host(store: EmbeddedStore, host: str, samples: list[HostSample], events: list[Event]) -> None:
    rows = [
        {"host": host, "device": one.device, "metric": one.metric, "at_ns": one.at_ns, "value": one.value}
        for one in samples
    ]
    happened = [
        {"host": host, "device": one.device, "at_ns": one.at_ns, "name": one.name, "text": one.text} for one in events
    ]
    insert(store, "host_samples", pa.Table.from_pylist(rows, schema=HOST_SAMPLES), run_id="simulated")
    insert(store, "host_events", pa.Table.from_pylist(happened, schema=HOST_EVENTS), run_id="simulated")


@contextmanager
def stored(made: Simulation, script: Script) -> Iterator[RunView]:
    """The view of a simulated run on one host of eight scripted GPUs."""
    steps = made.operations[Stage.STEP]
    first_ns = int(steps.start_ns.min()) - 10 * SECOND_NS
    last_ns = int((steps.start_ns + steps.duration_ns).max()) + 5 * SECOND_NS
    samples, events = recorded(ScriptedNvml(h100s(8)), script, first_ns, last_ns)
    with memory_store() as store:
        put_simulation(as_run(made), samples_table(made), StoreTarget(store))
        put_host(store, made.plan.hosts[0], samples, events)
        yield load_view(StoreReader(store), "simulated", 0)


def run(*faults: str) -> Simulation:
    return simulate(plan(*faults, topology=Topology(dp=4, tp=2), device="cuda", num_steps=NUM_STEPS))


def test_overheated_gpu_that_slows_its_rank_is_reported() -> None:
    with stored(run(f"slow:rank={CULPRIT},factor=1.4,first_step={SLOW_FROM}"), throttled) as view:
        (finding,) = detect_gpu_throttled(view)
        assert finding.ranks == [CULPRIT]
        assert finding.evidence["reason"] == "heat"
        assert finding.evidence["sm_clock_mhz"] == pytest.approx(1200, rel=0.15)
        assert abs(finding.window.first_step - SLOW_FROM) <= 5
        assert detect_gpu_errors(view) == []


@pytest.mark.parametrize("faults", [(), (f"slow:rank={CULPRIT},factor=1.4",)], ids=["healthy", "slow otherwise"])
def test_healthy_gpus_are_not_reported(faults: tuple[str, ...]) -> None:
    with stored(run(*faults), healthy) as view:
        assert detect_gpu_throttled(view) == []
        assert detect_gpu_errors(view) == []


def test_gpu_that_falls_off_the_bus_is_reported() -> None:
    with stored(run(), lost) as view:
        told = tuple({"device": "cuda", "gpu_uuid": gpu.uuid} for gpu in h100s(8))
        (finding,) = detect_gpu_errors(replace(view, meta=told))
        assert finding.ranks == [CULPRIT]
        assert finding.evidence["xids"] == [79]
