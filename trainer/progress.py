"""Reports the figures of each step: as samples for telemetry, and as a line in a file for the launcher.

OUT/progress.jsonl    {"step": 7, "loss": 3.1, "gradient_norm": 0.8, "step_seconds": 0.9, "tokens_per_second": 8192}

Model FLOPs utilisation (MFU), as defined by MegaScale (arXiv 2402.15627, table 2):

    FLOP per token = 72 L h^2 (1 + w / (6 h) + V / (12 L h))        L layers, h hidden size, V vocabulary size,
    MFU = tokens/s x FLOP per token / (devices x dense peak)        w keys per query

This counts forward and backward (three times the forward) without recomputation. Causal attention counts in full. w is
the sequence length, or the window of sliding-window attention. On a CPU there is no MFU, unless a peak is given.

With a window there is a second figure, MFU with skipped work: w is the sequence length, as if the work that the window
skips had been done. It compares runs with and without a window by their tokens/s.

The figures of a step are copied to the host while the device continues:

device   step 7 .. sum over ranks .. copy -> pinned memory, event      step 8 .. step 9 ..
host                                                  event complete? -> figures of step 7
"""

import io
import json
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import telemetry
from trainer.config import ModelConfig, TrainConfig
from trainer.output import open_output


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """The figures of a step, over all ranks."""

    step: int
    loss: float
    gradient_norm: float
    step_seconds: float


class HostReadout:
    """Figures of steps on a CPU. They are available at once. A step lasts from one call of ``put`` to the next."""

    def __init__(self) -> None:
        self._last_ns = time.monotonic_ns()
        self._ready: list[StepFigures] = []

    def put(self, step: int, totals: Tensor) -> None:
        """Add a step. ``totals`` contains the squared gradient norm and the loss."""
        now = time.monotonic_ns()
        self._ready.append(_figures(step, totals, (now - self._last_ns) / 1e9))
        self._last_ns = now

    def ready(self, *, wait: bool = False) -> list[StepFigures]:
        """New figures since the last call, in order of steps."""
        ready, self._ready = self._ready, []
        return ready


def recorded_event() -> Any:
    """A timing event on the current stream."""
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


class DeviceReadout:
    """Figures of steps on a GPU. They are available some steps later. A step lasts from one event to the next."""

    def __init__(self) -> None:
        self._open: deque[tuple[int, Tensor, Any]] = deque()
        self._last = recorded_event()

    def put(self, step: int, totals: Tensor) -> None:
        """Add a step, see ``HostReadout.put``. The copy is queued on the stream after the step."""
        copy = torch.empty(totals.shape, dtype=totals.dtype, pin_memory=True)
        copy.copy_(totals, non_blocking=True)
        self._open.append((step, copy, recorded_event()))

    def ready(self, *, wait: bool = False) -> list[StepFigures]:
        """New figures since the last call, in order of steps. With ``wait``: wait for all of them."""
        if wait and self._open:
            self._open[-1][2].synchronize()
        figures = []
        while self._open and self._open[0][2].query():
            step, copy, event = self._open.popleft()
            figures.append(_figures(step, copy, self._last.elapsed_time(event) / 1e3))
            self._last = event
        return figures


def _figures(step: int, totals: Tensor, seconds: float) -> StepFigures:
    square_sum, loss = totals.tolist()
    return StepFigures(step=step, loss=loss, gradient_norm=square_sum**0.5, step_seconds=seconds)


DENSE_BF16_TFLOPS = {
    "B200": 2250.0,
    "B100": 1750.0,
    "GH200": 989.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "H800": 989.0,
    "H20": 148.0,
    "A100": 312.0,
    "A800": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
    "V100": 125.0,
}
"""Part of a device name -> peak of the vendor without sparsity. The first match is used."""


def flop_per_token(model: ModelConfig, *, with_skipped: bool = False) -> float:
    """Floating-point operations of one training step per token. ``with_skipped``: also those that a window skips."""
    layers, hidden = model.num_layers, model.hidden_size
    attention = (model.sequence_length if with_skipped else model.attention_span) / (6 * hidden)
    head = model.vocab_size / (12 * layers * hidden)
    return 72.0 * layers * hidden**2 * (1 + attention + head)


def peak_tflops(config: TrainConfig) -> float | None:
    """The peak of one device, from the config or by the name of the GPU. None if it is unknown."""
    if config.peak_tflops is not None or config.device == "cpu":
        return config.peak_tflops
    name = torch.cuda.get_device_name()
    return next((peak for part, peak in DENSE_BF16_TFLOPS.items() if part in name), None)


def model_flops_utilisation(
    tokens_per_second: float, config: TrainConfig, peak: float | None, *, with_skipped: bool = False
) -> float | None:
    """MFU, a share of the peak from 0 to 1; None without a peak. With ``with_skipped`` it has no upper limit."""
    if peak is None:
        return None
    devices = config.parallel.topology.world_size
    return tokens_per_second * flop_per_token(config.model, with_skipped=with_skipped) / (devices * peak * 1e12)


def peak_memory_mib(device: torch.device) -> float:
    """The most memory that this process has used so far, MiB: of the GPU, as allocated by torch, else of the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    with suppress(OSError), Path("/proc/self/status").open() as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


PEAK_MEMORY = "peak-memory-mib"
"""Sample of each rank after its last step."""


class Progress:
    """Reports figures. Only the reporting rank has a ``path``. The other ranks report nothing."""

    def __init__(self, config: TrainConfig, path: Path | None) -> None:
        self._config = config
        self._peak = peak_tflops(config)
        self._file = io.TextIOWrapper(open_output(path), line_buffering=True) if path else None

    def report(self, steps: Iterable[StepFigures]) -> None:
        """Send the figures of each step as samples, and write them to the file."""
        if self._file is None:
            return
        for figures in steps:
            rates = self._rates(figures)
            for metric, value in rates.items():
                telemetry.sample(metric.replace("_", "-"), value, step=figures.step)
            with suppress(OSError):  # if the disk is full, the line is lost and the training continues
                self._file.write(json.dumps({"step": figures.step, **rates}) + "\n")

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def _rates(self, figures: StepFigures) -> dict[str, float]:
        values = asdict(figures)
        del values["step"]
        values["tokens_per_second"] = self._config.tokens_per_step / figures.step_seconds
        tokens_per_second = values["tokens_per_second"]
        mfu = model_flops_utilisation(tokens_per_second, self._config, self._peak)
        if mfu is not None:
            values["mfu"] = mfu
        full = model_flops_utilisation(tokens_per_second, self._config, self._peak, with_skipped=True)
        if full is not None and full != mfu:
            values["mfu_with_skipped"] = full
        return values
