"""Cost of a profile on demand for the rank: a training step without and with it, its start, its end, and its size.

python -m tests.benchmarks.profiling [--json]

One process on the CPU, with the recorder. The step is a forward and a backward of a small transformer layer.
"""

import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter_ns

import torch
from torch import nn

import telemetry
from telemetry.profiles import OUTCOME, REQUEST, TRACE, Phase, ProfileOutcome, ProfileRequest
from telemetry.record.profile_files import place_request, read_outcome, remove_profile
from telemetry.topology import Topology
from tests.benchmarks.figures import Figure, report

ROUNDS, STEPS = 10, 10


class ProfileCost:
    """In each round some plain steps, then as many profiled ones."""

    title = "Cost of a profile on demand"
    command = "python -m tests.benchmarks.profiling"

    def run(self) -> list[Figure]:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory(prefix="profile-cost-") as spool:
            session = telemetry.start("cost", spool=spool, topology=Topology(), rank=0, agent=False)
            assert session.folder is not None
            try:
                return _figures([_round(number, session.folder) for number in range(ROUNDS)][1:])
            finally:
                telemetry.stop()


Round = dict[str, float]
_layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
_rows = torch.randn(4, 32, 64)


def _round(number: int, folder: Path) -> Round:
    first = number * 3 * STEPS
    plain = [_step(first + step) for step in range(STEPS)]
    assert place_request(folder, ProfileRequest(profile_id=f"{number:032x}", rank=0, steps=STEPS, seconds=600))
    profiled = [_step(first + STEPS + step) for step in range(STEPS)]
    after = _step(first + 2 * STEPS)
    outcome = read_outcome(folder, f"{number:032x}")
    assert isinstance(outcome, ProfileOutcome)
    assert outcome.phase == Phase.DONE, outcome
    remove_profile(folder, REQUEST, OUTCOME, TRACE)
    usual = statistics.median(plain)
    return {
        "plain": usual,
        "profiled": statistics.median(profiled),
        "start": profiled[0] - statistics.median(profiled),
        "end": after - usual,
        "size": outcome.size_bytes / STEPS / 1024,
    }


def _step(number: int) -> float:
    """Run a step. Returns its milliseconds."""
    began = perf_counter_ns()
    with telemetry.step(number):
        _layer(_rows).square().mean().backward()
    return (perf_counter_ns() - began) / 1e6


def _figures(rounds: list[Round]) -> list[Figure]:
    def figure(name: str, key: str, unit: str, **fields: object) -> Figure:
        values = [found[key] for found in rounds]
        tenths = statistics.quantiles(values, n=10)
        return Figure(name=name, value=statistics.median(values), unit=unit, low=tenths[0], high=tenths[-1], **fields)  # type: ignore[arg-type]

    plain = statistics.median(found["plain"] for found in rounds)
    return [
        figure("profiled step", "profiled", "ms", rival="the same step, not profiled", rival_value=plain),
        figure("start of a profile, after the first one", "start", "ms"),
        figure(f"end of a profile of {STEPS} steps: stop and write", "end", "ms"),
        figure("trace, uncompressed", "size", "KiB per step"),
    ]


BENCHMARK = ProfileCost()

if __name__ == "__main__":
    sys.exit(report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv))
