"""What spans cost a loop on a GPU: blocks of steps with and without recording, in turn, in one process."""

import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

import telemetry
from telemetry.record.session import Device
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.gpu.outcome import say

PAIRS, WARM_UP = 40, 5
STEPS, MICROBATCHES, MATMULS = 5, 8, 8
SIDE = 2048
MAX_RATIO = 1.02


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:
        traced, plain = measure(Path(name), "cuda", torch.cuda.synchronize)
    figures = {
        "ratio": round(ratio_of_pairs(traced, plain), 4),
        "traced_ms": round(median(traced) * 1e3, 3),
        "plain_ms": round(median(plain) * 1e3, 3),
        "spans_a_block": STEPS * (2 * MICROBATCHES + 1),
        "pairs": PAIRS,
    }
    good = figures["ratio"] <= MAX_RATIO
    say("passed" if good else "failed", figures, "" if good else f"the ratio must not be above {MAX_RATIO}")


def measure(folder: Path, device: Device, synchronize: Callable[[], None]) -> tuple[list[float], ...]:
    """Seconds of each block with recording, and without. Their order alternates."""
    gc.disable()
    side = torch.ones(SIDE, SIDE, device=device)
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(PAIRS + WARM_UP):
        for traced in (True, False) if number % 2 else (False, True):
            found[traced].append(_block(side, folder, number, device, synchronize, traced=traced))
    return found[True][WARM_UP:], found[False][WARM_UP:]


def _block(
    side: torch.Tensor,
    folder: Path,
    number: int,
    device: Device,
    synchronize: Callable[[], None],
    *,
    traced: bool,
) -> float:
    """Seconds of a block, without the start and stop of the recording."""
    if traced:
        session = telemetry.start(
            "overhead", attempt=number, topology=Topology(), rank=0, spool=folder, agent=False, device=device
        )
        assert session.recording
    synchronize()
    began = time.perf_counter()
    for step in range(STEPS):
        with telemetry.step(step):
            for microbatch in range(MICROBATCHES):
                for stage in (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE):
                    with telemetry.span(stage, microbatch=microbatch):
                        for _ in range(MATMULS):
                            side @ side
    synchronize()
    spent = time.perf_counter() - began
    telemetry.stop()
    return spent


def ratio_of_pairs(traced: list[float], plain: list[float]) -> float:
    """The median of the ratios: both of a pair ran at the same clocks of the GPU."""
    return median(one / other for one, other in zip(traced, plain, strict=True))


if __name__ == "__main__":
    main()
