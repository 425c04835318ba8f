"""`rankscope diagnose whatif [RUN]`: what a slowdown cost, and what putting it right would gain."""

from dataclasses import replace

import typer

from diagnose.model.load import load_view, newest_attempt
from diagnose.model.run_state import heard_of
from diagnose.pipeline import stall_first
from diagnose.report import whatif_object, whatif_text
from diagnose.whatif.conclude import conclude
from ui.cli.diagnose import FirstStepOption, LastStepOption, SpoolOption, step_window
from ui.cli.options import DEFAULT_STORE, AttemptOption, JsonOption, RunArgument, StoreOption, out
from ui.cli.readers import open_reader, open_spool


def whatif(
    run: RunArgument = None,
    store: StoreOption = DEFAULT_STORE,
    attempt: AttemptOption = None,
    first_step: FirstStepOption = None,
    last_step: LastStepOption = None,
    spool: SpoolOption = None,
    json: JsonOption = False,
) -> None:
    """Replay every step as if nobody were slow: what is lost, where, and what each remedy would gain.

    Exit status 1 when there are findings.
    """
    window = step_window(first_step, last_step)
    with open_spool(spool) if spool else open_reader(store) as reader:
        conclusion = conclude(load_view(reader, *newest_attempt(reader, run, attempt), window))
        heard = heard_of(reader, conclusion.report.run_id, conclusion.report.attempt)
        report = stall_first(replace(conclusion.report, heard=heard), reader)
        conclusion = replace(conclusion, report=report)
    if json:
        out.print_json(data=whatif_object(conclusion))
    else:
        out.print(whatif_text(conclusion))
    raise typer.Exit(conclusion.report.exit_status)
