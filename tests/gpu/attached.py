"""A plain DDP training under NCCL, with rankscope enabled by variables only: same losses, and spans of the device."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path

import torch

from telemetry.stages import STAGE_BY_CODE, SpanClock, Stage
from tests.gpu.outcome import say
from tests.gpu.plain_ddp import STEPS
from tests.trainer.recorded import spans_of

SCRIPT = Path(__file__).with_name("plain_ddp.py")
EXPECTED = (Stage.STEP, Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.OPTIMIZER)


def main() -> None:
    if not entry_points(group="torch.backends", name="rankscope"):
        say("not-run", {}, "rankscope is not installed, so torch does not load its entry point")
        return
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:
        plain = _losses({"RANKSCOPE": "0"})
        traced = _losses({"RANKSCOPE": "1", "RANKSCOPE_RUN": "attached", "RANKSCOPE_SPOOL": f"{name}/spool"})
        spans = _device_spans(Path(name))
    missing = [stage.label for stage in EXPECTED if spans.get(stage.label, 0) < STEPS - 1]
    wrong = [f"too few spans on the device: {', '.join(missing)}"] if missing else []
    if traced != plain:
        wrong.append("losses differ with rankscope")
    say("failed" if wrong else "passed", {"same_losses": traced == plain, "device_spans": spans}, "; ".join(wrong))


def _losses(variables: dict[str, str]) -> list[float]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={torch.cuda.device_count()}", str(SCRIPT)]
    result = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True)
    losses: list[float] = json.loads(result.stdout.splitlines()[-1])
    return losses


def _device_spans(out: Path) -> dict[str, int]:
    """Number of spans of rank 0 that the device timed, by stage."""
    spans = spans_of(out)[0]
    codes = spans["stage"][spans["text_length"] == SpanClock.DEVICE].tolist()
    return Counter(STAGE_BY_CODE[code].label for code in codes)


if __name__ == "__main__":
    main()
