"""CUDA graphs captured while the drain thread has spans to resolve: no capture fails, and later spans are recorded.

The same captures without recording come first. If one of them fails, recording is not the cause.
"""

import tempfile
import threading
from contextlib import nullcontext
from pathlib import Path

import torch

import telemetry
from telemetry.stages import Stage
from tests.gpu.outcome import say
from tests.telemetry.recording import recorded, session

CAPTURES = 40
INSIDE_S = 0.05
"""A capture lasts longer than the period of the drain."""
BUSY_CYCLES = 20_000_000
LATER = 10


def main() -> None:
    without = _failed_captures(None)
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:
        failures = _failed_captures(Path(name))
        found = recorded(Path(name))
    later = found.stages.count(Stage.OPTIMIZER.label)
    failed_clock = [text for mark, text in found.marks if mark == "device-clock-failed"]
    figures = {
        "captures": CAPTURES,
        "failed": len(failures),
        "failed_without_recording": len(without),
        "later_spans": later,
        "of": LATER,
    }
    reason = "; ".join([*failures[:1], *failed_clock])
    say("passed" if not failures and not failed_clock and later == LATER else "failed", figures, reason)


def _failed_captures(folder: Path | None) -> list[str]:
    """Errors of captures, with recording into ``folder``, or without recording."""
    failures: list[str] = []
    weight, pause, beside = torch.ones(256, 256, device="cuda"), threading.Event(), torch.cuda.Stream()
    _prepare(weight)
    with nullcontext() if folder is None else session(folder, device="cuda"):
        for _ in range(CAPTURES):
            with torch.cuda.stream(beside), telemetry.span(Stage.FORWARD_COMPUTE):
                torch.cuda._sleep(BUSY_CYCLES)
            try:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    weight @ weight
                    pause.wait(INSIDE_S)
                graph.replay()
            except RuntimeError as error:
                failures.append(str(error).splitlines()[0])
            torch.cuda.synchronize()
        for _ in range(LATER):
            with telemetry.span(Stage.OPTIMIZER):
                weight @ weight
    return failures


def _prepare(weight: torch.Tensor) -> None:
    """Multiply once outside a capture. The first product initialises cuBLAS, which is not possible inside a capture."""
    with torch.cuda.stream(torch.cuda.Stream()):
        weight @ weight
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
