"""The work of `rankscope ablate`: train the rows of an ablation in turns, and show the table.

round 0    row 0, row 1, row 2 ...     each one `rankscope train` with --label ablation=NAME --label row=1 ...
round 1    row 1, row 2 ... row 0      another row is first: a slow hour of the machine affects all rows
"""

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.markup import escape

from diagnose.ablation import ABLATION, OPTIONS, ROW, SEPARATOR, TECHNIQUE, load_ablation
from diagnose.report import ablation_object, ablation_text
from telemetry.errors import RankscopeError, UsageError
from telemetry.labels import label_meta
from telemetry.run_names import checked_run_name
from telemetry.wire.client import CollectorClient
from trainer.config import TrainConfig
from trainer.output import open_output, replace_output
from trainer.recipes import recipe_named
from trainer.techniques import Row, rows_of
from ui.cli.commands.ablate import AblateOptions
from ui.cli.demonstration import RANKSCOPE, child, output_folder, serving
from ui.cli.output import out, progress
from ui.cli.train import config_of, configured, options_from

TABLE = "ablation.json"
LOG = "train.log"


def ablate(options: AblateOptions) -> int:
    name = checked_run_name(options.name or f"ablate-{time.strftime('%Y%m%d-%H%M%S')}")
    rows = rows_of(_config(options), _named(options.techniques))
    for row in rows:
        label_meta(_labels(name, row))
        _check(options, row)
    folder = output_folder(options.folder, name)
    with _collector(options, folder) as collector:
        for number in range(options.rounds):
            for row in (*rows[number % len(rows) :], *rows[: number % len(rows)]):
                which = f"round {number + 1} of {options.rounds}, table row {row.number} (0 to {len(rows) - 1})"
                progress.print(f"{which}: {escape(row.title)}")
                _train(options, collector, folder, name, row, number)
        ablation = load_ablation(collector, name)
    table = ablation_object(ablation)
    replace_output(folder / TABLE, json.dumps(table, indent=1) + "\n")
    if options.json:
        out.print_json(data=table)
    else:
        out.print(ablation_text(ablation))
    progress.print(f"table: {escape(str(folder / TABLE))}")
    return 0


def _config(options: AblateOptions) -> TrainConfig:
    """The recipe on the grid of the trainings."""
    given = {"dp": options.dp, "pp": options.pp, "tp": options.tp, "num_microbatches": options.microbatches}
    return configured(recipe_named(options.recipe), {"path": options.data}, options.steps, given)


def _check(options: AblateOptions, row: Row) -> None:
    """Check the options of a row before the first training begins.

    Raises:
        UsageError: `rankscope train` refuses the options of this row.
    """
    try:
        config_of(options_from([*_given(options), *row.options]))
    except UsageError as error:
        raise UsageError(f"row {row.number}, {row.title}: {error.message}", hint=error.hint) from error


def _named(techniques: str | None) -> list[str] | None:
    return None if techniques is None else [word.strip() for word in techniques.split(",") if word.strip()]


@contextmanager
def _collector(options: AblateOptions, folder: Path) -> Iterator[CollectorClient]:
    """The collector of the user, or one that runs while the ``with`` block runs."""
    if options.collector is not None:
        yield CollectorClient(options.collector)
        return
    with serving(folder) as collector:
        yield collector


def _labels(name: str, row: Row) -> list[str]:
    labels = {ABLATION: name, ROW: str(row.number), TECHNIQUE: row.title, OPTIONS: shlex.join(row.options)}
    return [f"{label}={value}" for label, value in labels.items()]


def _train(options: AblateOptions, collector: CollectorClient, folder: Path, name: str, row: Row, number: int) -> None:
    """Raises:
    RankscopeError: the training failed.
    """
    run_id = SEPARATOR.join((name, f"{row.number:02}", str(number)))
    place = folder / "runs" / run_id
    place.mkdir(parents=True, exist_ok=True)
    command = [*RANKSCOPE, "train", *_given(options), *row.options, "--run", run_id, "--out", str(place)]
    command += ["--collector", collector.url]
    for label in _labels(name, row):
        command += ["--label", label]
    with open_output(place / LOG) as log, child(command, log) as process:
        status = process.wait()
    if status:
        raise RankscopeError(
            f"{row.title}: the training ended with status {status}", hint=f"see its log: {place / LOG}"
        )


def _given(options: AblateOptions) -> list[str]:
    """Options that all rows share."""
    values = {
        "recipe": options.recipe,
        "steps": options.steps,
        "data": options.data,
        "dp": options.dp,
        "pp": options.pp,
        "tp": options.tp,
        "microbatches": options.microbatches,
        "comm-delay-ms": options.comm_delay_ms or None,
        "peak-tflops": options.peak_tflops,
    }
    return [word for name, value in values.items() if value is not None for word in (f"--{name}", str(value))]
