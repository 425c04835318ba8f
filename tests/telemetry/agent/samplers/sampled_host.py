"""A made host with one rank, sampled once a second, and the content of its samples."""

from telemetry.agent.samplers.host import HostSampler
from telemetry.agent.samplers.interface import Sample
from telemetry.host_metrics import Happening
from tests.telemetry.agent.samplers.made_proc import MadeHost, MadeProcess

SECOND_NS = 1_000_000_000
BEGAN_NS = 1_790_000_000 * SECOND_NS
RANK_PID = 500


class Sampled:
    """A made host with rank 5 on it, sampled once a second."""

    def __init__(self, host: MadeHost) -> None:
        self.host = host
        self.rank = MadeProcess(pid=RANK_PID, num_threads=7)
        host.processes.append(self.rank)
        host.write()
        self.pids = {5: RANK_PID}
        self.sampler = HostSampler(proc=host.proc, cgroups=host.cgroups, ranks=lambda: self.pids, clock=lambda: 0)
        self.seconds = 0

    def sample(self, seconds: int = 1) -> Sample:
        self.host.write()
        self.seconds += seconds
        return self.sampler.sample(BEGAN_NS + self.seconds * SECOND_NS)


def values(sample: Sample, device: str = "") -> dict[str, float]:
    return {reading.metric: reading.value for reading in sample.readings if reading.device == device}


def told(sample: Sample, name: Happening) -> list[tuple[str, str]]:
    return [(event.device, event.text) for event in sample.events if event.name == name]
