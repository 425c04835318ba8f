"""The work of `rankscope diagnose whatif [RUN]`: what a slowdown costs, and what each remedy would save."""

from dataclasses import replace

from diagnose.model.load import load_view, newest_attempt
from diagnose.model.run_state import heard_of
from diagnose.pipeline import stall_first
from diagnose.report import whatif_object, whatif_text
from diagnose.whatif.conclude import conclude
from ui.cli.commands.diagnose import WhatifOptions
from ui.cli.diagnose import step_window
from ui.cli.output import out
from ui.cli.readers import open_reader, open_spool


def whatif(options: WhatifOptions) -> int:
    window = step_window(options.first_step, options.last_step)
    with open_spool(options.spool) if options.spool else open_reader(options.store) as reader:
        conclusion = conclude(load_view(reader, *newest_attempt(reader, options.run, options.attempt), window))
        heard = heard_of(reader, conclusion.report.run_id, conclusion.report.attempt)
        report = stall_first(replace(conclusion.report, heard=heard), reader)
        conclusion = replace(conclusion, report=report)
    if options.json:
        out.print_json(data=whatif_object(conclusion))
    else:
        out.print(whatif_text(conclusion))
    return conclusion.report.exit_status
