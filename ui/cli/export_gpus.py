"""The work of `rankscope export gpus`: the GPU of each rank, as a table or as a metric."""

from dataclasses import asdict

from diagnose.gpu_map import RankGpu, as_csv, as_metric, rank_gpus
from diagnose.model.load import newest_attempt
from diagnose.trace.whole_file import whole_file
from telemetry.printable import printable
from ui.cli.commands.export import GpusOptions
from ui.cli.output import out, progress
from ui.cli.readers import open_reader
from ui.dashboard.wording import count


def export_gpus(options: GpusOptions) -> int:
    with open_reader(options.store) as reader:
        run_id, attempt = newest_attempt(reader, options.run, options.attempt)
        gpus = rank_gpus(reader, run_id, attempt)
    text = as_csv(gpus) if options.form == "csv" else as_metric(gpus)
    if options.out_file:
        with whole_file(options.out_file) as file:
            file.write(text.encode())
    if options.json:
        out.print_json(data={"schema": 1, "run": run_id, "attempt": attempt, "gpus": [asdict(gpu) for gpu in gpus]})
    elif not options.out_file:
        out.print(text, end="", markup=False, highlight=False)
    progress.print(_note(run_id, gpus), markup=False, highlight=False)
    return 0


def _note(run_id: str, gpus: list[RankGpu]) -> str:
    num_assumed = sum(gpu.source == "assumed" for gpu in gpus)
    num_unknown = sum(not gpu.uuid for gpu in gpus)
    notes = [f"{num_assumed} assumed from the order of the ranks on the host"] if num_assumed else []
    notes += [f"{num_unknown} without a known UUID"] if num_unknown else []
    return ", ".join([f"{printable(run_id)}: {count(len(gpus), 'rank')} with a GPU", *notes])
