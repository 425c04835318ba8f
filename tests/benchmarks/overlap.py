"""The effect of overlap: exposed communication of a training on eight gloo ranks, with overlap off and on.

    python -m tests.benchmarks.overlap --json

Every operation between ranks takes 20 ms longer. Runs with and without overlap alternate. A mode is a value of
`--overlap`, with or without the other schedule: `pp:zero-bubble`. The figures are those of `rankscope diagnose` for
each step: medians over the steps of a run, then over the runs. ``apart`` compares them with a plain loop over the spans
of the rank files.

``transfer`` is the part of the exposed time after the last participant has issued the operation. It leaves out waiting
for other ranks: pipeline bubbles, and ranks that do not get a core. So it shows what overlap hides also on a busy
machine.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from diagnose.findings import StepWindow
from diagnose.model.exposed import AXIS_OF_STAGE
from diagnose.model.operations import recorded_masks
from diagnose.pipeline import diagnose_run
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass
from telemetry.topology import Topology
from tests.trainer.jobs import run_job
from tests.trainer.recorded import Records, of_stage, spans_of
from trainer.config import OverlapConfig, TrainConfig
from trainer.recipes import deep_cpu
from ui.cli.readers import open_spool

DELAY_S = 0.02
FIRST_STEP = 1
"""The first step prepares torch."""
LEAST_DROP = {"dp": 0.7, "pp": 0.4, "tp": 0.3}
MOST_LOSS_DIFFERENCE = 1e-6
MOST_DIFFERENCE = 1e-3
"""Between diagnose and the direct computation, relative."""
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run."""

    exposed: dict[str, float]
    """Seconds of a step."""
    transfer: dict[str, float]
    """Seconds of a step."""
    apart: float
    """Largest relative difference between diagnose and the direct computation."""
    losses: list[float]
    step_s: float


def measure(config: TrainConfig, out: Path) -> Measured:
    """Train and read the spans."""
    ended = run_job(config, out, comm_delay_s=DELAY_S)
    steps = range(FIRST_STEP, config.num_steps)
    with open_spool(out / "spool") as reader:
        windows = [StepWindow(first_step=step, last_step=step) for step in steps]
        reports = [diagnose_run(reader, "job", 0, window).exposed for window in windows]
    recorded, topology = spans_of(out), config.parallel.topology
    return Measured(
        transfer={axis: median(transfer_s(recorded, topology, axis, step) for step in steps) for axis in reports[0]},
        exposed={axis: median(exposed[axis].seconds for exposed in reports) for axis in reports[0]},
        apart=max(
            abs(direct_exposed_s(recorded, axis, range(step, step + 1)) / figure.seconds - 1)
            for step, exposed in zip(steps, reports, strict=True)
            for axis, figure in exposed.items()
        ),
        losses=ended.losses,
        step_s=median(
            float(np.median(of_stage(spans, Stage.STEP)["duration_ns"])) / 1e9 for spans in recorded.values()
        ),
    )


def direct_exposed_s(recorded: dict[int, Records], axis: str, steps: range) -> float:
    """The figure of an axis for spans of a host, by a loop over every span: the mean over ranks and steps."""
    totals = []
    for spans in recorded.values():
        waits = {int(span["start_ns"] + span["duration_ns"]): int(span["start_ns"]) for span in _waits(spans)}
        for step in steps:
            mine = [span for span in spans if span["step"] == step]
            moving = [span for span in mine if AXIS_OF_STAGE.get(STAGE_BY_CODE[int(span["stage"])])]
            blocked = [_blocked(span, waits) for span in moving]
            computes = [_interval(span) for span in mine if _is_compute(span)]
            stops = [each for each in blocked if any(begin <= each[0] and each[1] <= end for begin, end in computes)]
            along = [
                each
                for each, span in zip(blocked, moving, strict=True)
                if AXIS_OF_STAGE[STAGE_BY_CODE[int(span["stage"])]] == axis
            ]
            if along:
                totals.append(_length(_minus(_union(along), _minus(_union(computes), _union(stops)))))
    return sum(totals) / len(totals) / 1e9


def transfer_s(recorded: dict[int, Records], topology: Topology, axis: str, step: int) -> float:
    """Exposed time of a step after every participant has issued the operation: the mean over ranks. All ranks have one
    clock."""
    issued: dict[tuple[object, ...], int] = {}
    blocked: list[tuple[tuple[object, ...], Interval]] = []
    for rank, spans in recorded.items():
        waits = {int(span["start_ns"] + span["duration_ns"]): int(span["start_ns"]) for span in _waits(spans)}
        for span in spans[spans["step"] == step]:
            stage = STAGE_BY_CODE[int(span["stage"])]
            if AXIS_OF_STAGE.get(stage) == axis:
                key = _operation(rank, stage, span, topology)
                issued[key] = max(issued.get(key, 0), int(span["start_ns"]))
                blocked.append((key, _blocked(span, waits)))
    total = sum(max(0, end - max(begin, issued[key])) for key, (begin, end) in blocked)
    return total / len(recorded) / 1e9


def _operation(rank: int, stage: Stage, span: Records, topology: Topology) -> tuple[object, ...]:
    """The same for all participants of an operation."""
    peer, number = int(span["peer"]), int(span["op_seq"])
    if peer >= 0:
        sends = stage in (Stage.FORWARD_SEND, Stage.BACKWARD_SEND)
        direction = "forward" if stage in (Stage.FORWARD_SEND, Stage.FORWARD_RECV) else "backward"
        return direction, (rank, peer) if sends else (peer, rank), number
    mask = int(recorded_masks(np.array([peer], dtype=np.int32), topology)[0])
    return topology.group_of(rank, mask), number


def _waits(spans: Records) -> Records:
    return of_stage(spans, Stage.COMMUNICATION_WAIT)


def _interval(span: Records) -> Interval:
    return int(span["start_ns"]), int(span["start_ns"] + span["duration_ns"])


def _blocked(span: Records, waits: dict[int, int]) -> Interval:
    begin, end = _interval(span)
    return max(begin, waits.get(end, begin)), end


def _is_compute(span: Records) -> bool:
    return STAGE_BY_CODE[int(span["stage"])].stage_class is StageClass.COMPUTE


def _union(intervals: list[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _minus(intervals: list[Interval], removed: list[Interval]) -> list[Interval]:
    """Both are unions."""
    left = []
    for first, last in intervals:
        begin = first
        for out_begin, out_end in removed:
            if out_end > begin and out_begin < last:
                left.append((begin, max(begin, out_begin)))
                begin = max(begin, out_end)
        left.append((begin, max(begin, last)))
    return left


def _length(intervals: list[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)


def compare(config: TrainConfig, repeats: int, modes: list[str], folder: Path) -> dict[str, list[Measured]]:
    """Runs of each mode, interleaved."""
    found: dict[str, list[Measured]] = {mode: [] for mode in modes}
    for repeat in range(repeats):
        for mode in modes:
            axes, _, schedule = mode.partition(":")
            parallel = replace(config.parallel, schedule="zero-bubble" if schedule else "1f1b")
            chosen = replace(config, overlap=OverlapConfig.along(axes), parallel=parallel)
            found[mode].append(measure(chosen, folder / f"{repeat}-{mode}"))
            print(mode, json.dumps(asdict(found[mode][-1])), file=sys.stderr, flush=True)
    return found


def conclude(found: dict[str, list[Measured]]) -> dict[str, object]:
    """Medians, drops and whether the bounds hold."""
    medians = {
        mode: {axis: median(run.exposed[axis] for run in runs) for axis in runs[0].exposed}
        for mode, runs in found.items()
    }
    transfers = {
        mode: {axis: median(run.transfer[axis] for run in runs) for axis in runs[0].transfer}
        for mode, runs in found.items()
    }
    drops = {mode: _drops(medians["none"], of_mode) for mode, of_mode in medians.items() if mode != "none"}
    runs = [run for of_mode in found.values() for run in of_mode]
    apart = max(abs(a - b) for run in runs for a, b in zip(run.losses, runs[0].losses, strict=True))
    wrong = max(run.apart for run in runs)
    enough = all(
        drops[mode][axis] >= LEAST_DROP[axis]
        for mode in drops
        for axis in LEAST_DROP
        if getattr(OverlapConfig.along(mode.partition(":")[0]), axis)
    )
    return {
        "exposed_s": medians,
        "step_s": {mode: median(run.step_s for run in of_mode) for mode, of_mode in found.items()},
        "drops": drops,
        "transfer_s": transfers,
        "transfer_drops": {mode: _drops(transfers["none"], transfers[mode]) for mode in drops},
        "loss_difference": apart,
        "diagnose_over_direct": wrong,
        "holds": enough and apart <= MOST_LOSS_DIFFERENCE and wrong <= MOST_DIFFERENCE,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--modes", default="none all:zero-bubble", help="none first")
    for name in ("dp", "pp", "tp", "microbatches", "hidden", "layers"):
        parser.add_argument(f"--{name}", type=int, help="default: that of the recipe deep_cpu")
    arguments = parser.parse_args()
    config = _config(arguments)
    with tempfile.TemporaryDirectory() as folder:
        result = conclude(compare(config, arguments.repeats, arguments.modes.split(), Path(folder)))
    print(json.dumps(result, indent=2) if arguments.json else _table(result))
    return 0 if result["holds"] else 1


def _drops(off: dict[str, float], on: dict[str, float]) -> dict[str, float]:
    return {axis: 1 - seconds / off[axis] for axis, seconds in on.items() if off[axis]}


def _config(arguments: argparse.Namespace) -> TrainConfig:
    config = deep_cpu()
    names = {"dp": "dp", "pp": "pp", "tp": "tp", "microbatches": "num_microbatches"}
    chosen = {field: value for name, field in names.items() if (value := getattr(arguments, name))}
    return replace(
        config,
        parallel=replace(config.parallel, **chosen),
        model=replace(
            config.model,
            hidden_size=arguments.hidden or config.model.hidden_size,
            num_layers=arguments.layers or config.model.num_layers,
        ),
        num_steps=arguments.steps,
    )


def _table(result: dict[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in result.items())


if __name__ == "__main__":
    sys.exit(main())
