"""Output to a terminal: untrusted text is escaped in every form in which commands print."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from diagnose.hang.evidence import HangEvidence, LogLine, RankEvidence
from diagnose.hang.verdict import judge
from diagnose.model.marks import Loss, Mark
from diagnose.pipeline import diagnose_view
from diagnose.report import report_text
from diagnose.report.as_text import Terminal, line, mark_line
from diagnose.report.hang_as_text import hang_text
from telemetry.errors import UsageError
from telemetry.topology import Topology
from tests.diagnose.made_view import make_view
from ui.cli import runs

HOSTILE = "x\x1b]0;title\x07\x1b[2J\x9b31m\r\nforged line\u202etxt.exe\u2066\u200b\u2028"
SHOWN = r"x\x1b]0;title\x07\x1b[2J\x9b31m\r\nforged line\u202etxt.exe\u2066\u200b\u2028"


def printed(*what: object, terminal: bool = False) -> str:
    colours = "standard" if terminal else None
    console = Terminal(
        file=io.StringIO(), width=300, soft_wrap=True, force_terminal=terminal, color_system=colours, _environ={}
    )
    console.print(*what)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def assert_harmless(text: str) -> None:
    assert all(one.isprintable() for one in text.split("\n")), text


def test_terminal_prints_no_control_characters_of_untrusted_text() -> None:
    table = Table(HOSTILE)
    table.add_row(HOSTILE, Text(HOSTILE))
    for what in (HOSTILE, Text(HOSTILE), table, Group(Text(HOSTILE), table)):
        assert_harmless(printed(what))


def test_untrusted_text_adds_no_colours_to_those_of_the_command() -> None:
    assert printed(Text("red", style="red"), terminal=True) == "\x1b[31mred\x1b[0m\n"
    assert printed(line(HOSTILE, style="red"), terminal=True).count("\x1b") == 2


def test_printed_json_is_ascii_and_decodes_to_the_same_object() -> None:
    console = Terminal(file=io.StringIO())
    console.print_json(data={"run": HOSTILE})
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert told.isascii()
    assert_harmless(told)
    assert json.loads(told) == {"run": HOSTILE}


def test_error_text_escapes_untrusted_text_in_message_and_hint() -> None:
    error = UsageError(f"no file {HOSTILE}", hint=f"look at {HOSTILE}")
    assert str(error) == f"no file {SHOWN}\n\nhint: look at {SHOWN}"


def test_untrusted_names_in_a_report_start_no_new_line() -> None:
    report = diagnose_view(make_view(Topology(dp=2, pp=2, tp=2), slow={5: 1.4}))
    (finding,) = report.findings
    mark = Mark(
        name="link-down", host="h", device="d", at_ns=1, seconds=1.0, count=1, lasts=False, held_s=0.0, stretched=()
    )
    loss = Loss(rank=0, step=1, at_ns=1, text="5 records of 1.0 s: why")

    def text(name: str) -> str:
        return printed(
            report_text(
                replace(
                    report,
                    run_id=f"run {name}",
                    findings=(
                        replace(finding, summary=name, next_step=name, evidence={"name": name, "names": [name]}),
                    ),
                    marks=(replace(mark, host=name, device=name),),
                    losses=(replace(loss, text=f"5 records: {name}"),),
                )
            )
        )

    assert_harmless(text(HOSTILE))
    assert text(HOSTILE).count("\n") == text("plain").count("\n")
    assert text(HOSTILE).count(SHOWN) == text("plain").count("plain")


def test_untrusted_log_lines_and_notes_of_a_hang_start_no_new_line() -> None:
    def text(words: str) -> str:
        ranks = {0: RankEvidence(rank=0, log=(LogLine(at_ns=1, fault=words, text=words),))}
        evidence = HangEvidence(world_size=1, groups=(), ranks=ranks, run_id=words, notes=(words,))
        return printed(hang_text(judge(evidence)))

    assert_harmless(text(HOSTILE))
    assert text(HOSTILE).count("\n") == text("plain").count("\n")
    assert SHOWN in text(HOSTILE)


@pytest.mark.parametrize("terminal", [False, True])
def test_long_name_in_the_list_of_runs_does_not_shift_the_other_columns(
    terminal: bool,
) -> None:
    row = {"attempt": 0, "state": "live", "started_ns": 0, "num_ranks": 8, "first_step": 0, "last_step": 9}
    rows = [{**row, "run_id": name, "tags": []} for name in ("short", "n" * 200, HOSTILE)]
    told = printed(runs.table_of(rows, runs.NAME_WIDTH if terminal else None))
    assert_harmless(told)
    assert (SHOWN in told) is not terminal
    assert SHOWN[:50] in told
    assert ("n" * 200 in told) is not terminal
    lines = [line for line in told.splitlines() if "1970-01-01" in line]
    assert len(lines) == len(rows)
    assert len({line.index("1970-01-01") for line in lines}) == 1
    assert not terminal or max(map(len, lines)) < 120


def test_line_of_a_link_loss_has_the_longest_delay_and_the_number_of_others() -> None:
    lost = Mark(
        name="link-down",
        host="h",
        device="d",
        at_ns=1,
        seconds=1.0,
        count=1,
        lasts=False,
        held_s=1.2,
        stretched=("a took 1.2 s longer in step 7", "b took 1.1 s longer in step 7"),
    )
    assert mark_line(lost).endswith(
        "for 1.0 s, and the job stalled for 1.2 s: a took 1.2 s longer in step 7, and 1 more"
    )
