"""The work of `rankscope goodput`: the ledger of a run."""

from diagnose.goodput.stored import load_ledger
from diagnose.model.load import newest_attempt
from diagnose.report import goodput_object, goodput_text
from ui.cli.commands.goodput import GoodputOptions
from ui.cli.output import out
from ui.cli.readers import open_reader


def goodput(options: GoodputOptions) -> int:
    with open_reader(options.store) as reader:
        run_id, _ = newest_attempt(reader, options.run)
        ledger = load_ledger(reader, run_id)
    if options.json:
        out.print_json(data=goodput_object(ledger))
    else:
        out.print(goodput_text(ledger))
    return 0
