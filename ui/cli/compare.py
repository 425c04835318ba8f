"""The work of `rankscope compare`: read both sides, and print how B differs from A."""

from diagnose.compare.comparison import compare_sides
from diagnose.compare.sides import load_side, parse_side
from diagnose.report import comparison_object, comparison_text
from ui.cli.commands.compare import CompareOptions
from ui.cli.output import out
from ui.cli.readers import open_reader


def compare(options: CompareOptions) -> int:
    a, b = parse_side(options.a), parse_side(options.b)
    with open_reader(options.store) as reader:
        found = compare_sides(load_side(reader, a), load_side(reader, b), least_change=options.least_change / 100)
    if options.json:
        out.print_json(data=comparison_object(found))
    else:
        out.print(comparison_text(found))
    return found.exit_status
