"""Untrusted text is printed as one harmless line. Run names are checked."""

import io
import sys

import pytest

from telemetry.errors import UsageError
from telemetry.printable import log, one_line, printable, printable_lines
from telemetry.run_names import MAX_NAME_BYTES, checked_run_name, usable_run_name
from tests.each_case import each_case

HOSTILE = "a\x1b[2J\x9b31m\r\n\u202eb\u2066\u200b\u2028\x00\udcff\x7f"
GOOD = [
    "run-20261124-120000", "llama_8b.v2", "1234_5", "1234+0", "user@host:7", "lr=0.1,bs=32", "[sweep] (3)", "a b",
    "übung", "実験-7", "тест", "e\u0301t\u00e9", "50%", "#7", "~x", "n" * MAX_NAME_BYTES,
]  # fmt: skip
BAD = [
    "", " ", " a", "a ", ".", "..", ".hidden", "-x", "a/b", "a\\b", "a\nb", "a\tb", "a\x1b[2J", "a\x9bb", "a\u202eb",
    "a\u200bb", "a\u2028b", "a\x00b", "a\udcffb", "a;b", "a|b", "a$b", "a`b", "a'b", 'a"b', "a<b", "a*b", "a?b", "a&b",
    "a\u00a0b", "\N{GRINNING FACE}", "n" * (MAX_NAME_BYTES + 1), "\N{HIRAGANA LETTER A}" * 67,
]  # fmt: skip


def test_control_characters_are_escaped() -> None:
    assert printable(HOSTILE) == "a\\x1b[2J\\x9b31m\\r\\n\\u202eb\\u2066\\u200b\\u2028\\x00\\udcff\\x7f"
    assert printable("übung 実験") == "übung 実験"
    assert printable_lines("a\x1b\nb\r\n") == "a\\x1b\nb\\r\n"
    assert one_line("a \n\t b\x1b" + "c" * 50, 10) == "a b\\x1bcc…"


def test_text_of_several_lines_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log(f"rankscope: {HOSTILE}\n\nhint: next")
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.rstrip("\n").isprintable()
    assert told.endswith("; hint: next\n")


def test_log_line_that_cannot_be_written_is_dropped_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(full, write_through=True))
        log("the disk is full")
    log("the file is closed")


def test_log_writes_nothing_if_there_is_no_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    log("a line")
    assert capsys.readouterr().out == ""


@each_case("name", GOOD)
def test_common_run_names_are_accepted_unchanged(name: str) -> None:
    assert checked_run_name(name) == name
    assert usable_run_name(name) == name


@each_case("name", BAD)
def test_invalid_run_names_are_refused_in_one_line_and_have_a_usable_replacement(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid run name") as refused:
        checked_run_name(name)
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 200
    assert checked_run_name(usable_run_name(name)) == usable_run_name(name)


def test_long_run_names_that_differ_at_the_end_stay_different() -> None:
    assert usable_run_name("n" * 300 + "a") != usable_run_name("n" * 300 + "b")


def test_any_single_character_gives_a_usable_run_name() -> None:
    for code in range(0, sys.maxunicode, 97):
        name = usable_run_name(chr(code))
        assert checked_run_name(name) == name
