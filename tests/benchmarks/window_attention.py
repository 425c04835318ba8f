"""Processor time of attention over a sliding window, forward and backward, against full causal attention.

python -m tests.benchmarks.window_attention [--json]
"""

import statistics
import sys
from collections.abc import Callable
from time import process_time_ns

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.benchmarks.figures import Figure, report
from trainer.model.attention import windowed_attention

SHAPE = (1, 4, 4096, 64)
"""Batch, heads, sequence, head size."""
WINDOW = 512
ROUNDS = 7
BOUND = 1 / 3
FULL = "full causal attention (torch)"
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class WindowAttention:
    """Medians over rounds in which all variants take turns."""

    title = "Attention over a sliding window on the CPU"
    command = "python -m tests.benchmarks.window_attention"

    def run(self) -> list[Figure]:
        torch.set_num_threads(1)
        distance = torch.arange(SHAPE[2])[:, None] - torch.arange(SHAPE[2])
        band = (distance >= 0) & (distance < WINDOW)
        contenders: dict[str, Attention] = {
            FULL: lambda *inputs: F.scaled_dot_product_attention(*inputs, is_causal=True),
            "full attention with the window as mask (torch)": lambda *inputs: F.scaled_dot_product_attention(
                *inputs, attn_mask=band
            ),
            "window attention in blocks": lambda *inputs: windowed_attention(*inputs, window=WINDOW),
        }
        inputs = [torch.randn(SHAPE, requires_grad=True) for _ in range(3)]
        rounds = [{name: _cost_ms(inputs, attention) for name, attention in contenders.items()} for _ in range(ROUNDS)]
        return [
            figure
            for part in ("forward", "backward", "forward and backward")
            for figure in _figures(part, {name: [costs[name][part] for costs in rounds] for name in contenders})
        ]


def _cost_ms(inputs: list[Tensor], attention: Attention) -> dict[str, float]:
    """Milliseconds of processor time."""
    direction = torch.ones(SHAPE)
    began = process_time_ns()
    output = attention(*inputs)
    between = process_time_ns()
    torch.autograd.grad(output, inputs, direction)
    ended = process_time_ns()
    parts = {"forward": between - began, "backward": ended - between, "forward and backward": ended - began}
    return {name: duration_ns / 1e6 for name, duration_ns in parts.items()}


def _figures(part: str, costs: dict[str, list[float]]) -> list[Figure]:
    full = statistics.median(costs[FULL])
    figures = []
    for name, values in costs.items():
        tenths = statistics.quantiles(values, n=10)
        bounded = name == "window attention in blocks" and part == "forward and backward"
        figures.append(
            Figure(
                name=f"{name}, {part}",
                value=statistics.median(values),
                unit="ms CPU",
                rival=None if name == FULL else FULL,
                rival_value=None if name == FULL else full,
                low=tenths[0],
                high=tenths[-1],
                bound=full * BOUND if bounded else None,
            )
        )
    return figures


BENCHMARK = WindowAttention()


def main() -> int:
    """Print the figures. The exit status is 1 if the bound is broken."""
    return report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
