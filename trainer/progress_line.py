"""The launcher's line of progress: follows OUT/progress.jsonl, writes to stderr."""

import json
import sys
from pathlib import Path
from typing import Any

from trainer.progress import FILE_NAME

EVERY_STEPS = 10


class ProgressLine:
    """One line, rewritten on a terminal; elsewhere a line every ten steps."""

    def __init__(self, out: Path, num_steps: int) -> None:
        self._path = out / FILE_NAME
        self._path.unlink(missing_ok=True)
        self._num_steps = num_steps
        self._offset = 0
        self._terminal = sys.stderr.isatty()

    def update(self) -> None:
        """Show what has come since the last look."""
        for figures in self._new():
            if self._terminal:
                print(f"\r{self._words(figures)}\x1b[K", end="", file=sys.stderr, flush=True)
            elif figures["step"] % EVERY_STEPS == EVERY_STEPS - 1 or figures["step"] + 1 == self._num_steps:
                print(self._words(figures), file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Show the rest and leave the line."""
        self.update()
        if self._terminal:
            print(file=sys.stderr)

    def _new(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as source:
            source.seek(self._offset)
            whole = source.read().rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines()]

    def _words(self, figures: dict[str, Any]) -> str:
        words = f"step {figures['step'] + 1}/{self._num_steps}  loss {figures['loss']:.3f}"
        words += f"  {figures['step_seconds']:.2f} s  {figures['tokens_per_second']:,.0f} tokens/s"
        return words + (f"  MFU {figures['mfu']:.1%}" if "mfu" in figures else "")
