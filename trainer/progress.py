"""A step's figures to those who want them: telemetry as samples, the launcher as a line of a file.

OUT/progress.jsonl    {"step": 7, "loss": 3.1, "gradient_norm": 0.8, "step_seconds": 0.9, "tokens_per_second": 8192}
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import telemetry
from trainer.config import TrainConfig
from trainer.readout import StepFigures
from trainer.throughput import model_flops_utilisation, peak_tflops

FILE_NAME = "progress.jsonl"


class Progress:
    """Where figures go. Only the reporting rank has a ``path``; the others report nothing."""

    def __init__(self, config: TrainConfig, path: Path | None) -> None:
        self._config = config
        self._peak = peak_tflops(config)
        self._file = path.open("a", buffering=1) if path else None

    def report(self, steps: Iterable[StepFigures]) -> None:
        """Sample and note each step."""
        if self._file is None:
            return
        for figures in steps:
            rates = self._rates(figures)
            for metric, value in rates.items():
                telemetry.sample(metric.replace("_", "-"), value, step=figures.step)
            with suppress(OSError):  # a full disk costs the line of progress, not the training
                self._file.write(json.dumps({"step": figures.step, **rates}) + "\n")

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def _rates(self, figures: StepFigures) -> dict[str, float]:
        values = asdict(figures)
        del values["step"]
        values["tokens_per_second"] = self._config.tokens_per_step / figures.step_seconds
        mfu = model_flops_utilisation(values["tokens_per_second"], self._config, self._peak)
        return values if mfu is None else values | {"mfu": mfu}
