"""Bad input: one message with a hint, the right exit status, no traceback, no data lost."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.record.shipping_page import ShippingPage
from tests.scenarios.command import Answer, rankscope, run_code

MAKE_STORE = "import sys; from telemetry.stores.open import open_store; open_store(sys.argv[1]).close()"


def assert_error(answer: Answer, status: int, *words: str) -> None:
    """Check that the answer has this status, these words and a hint, and no traceback."""
    assert answer.status == status, answer.error
    assert "Traceback" not in answer.error
    assert "hint: " in answer.error
    for word in words:
        assert word in answer.error


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield int(taken.getsockname()[1])


def test_unknown_run_is_reported_with_the_stored_runs(spool_of_a_run: Path) -> None:
    assert_error(
        rankscope("diagnose", "nope", "--spool", spool_of_a_run),
        2,
        "no run 'nope'",
        "stored runs, newest first: small/0",
    )


def test_empty_store_is_reported_with_a_hint_how_to_fill_it(tmp_path: Path) -> None:
    store = f"embedded:{tmp_path / 'store'}"
    assert run_code(MAKE_STORE, store).status == 0
    assert_error(rankscope("diagnose", "--store", store), 2, "holds no run yet", "rankscope demo")
    answer = rankscope("runs", "--store", store)
    assert (answer.status, "no run stored yet" in answer.out) == (0, True)


def test_a_spool_without_rank_files_is_refused(tmp_path: Path) -> None:
    assert_error(rankscope("diagnose", "--spool", tmp_path), 2, str(tmp_path))
    assert_error(rankscope("diagnose", "--spool", tmp_path / "missing"), 2, "missing")


def test_torn_rank_file_is_still_diagnosed(spool_of_a_run: Path) -> None:
    segment = next(spool_of_a_run.glob("*/*/rank-00000/*.rec"))
    with segment.open("r+b") as file:
        file.truncate(4096 + 64 * 10 + 17)
    answer = rankscope("diagnose", "--spool", spool_of_a_run)
    assert answer.status in (0, 1), answer.error
    assert "small" in answer.out


def test_commands_exit_with_status_3_when_the_collector_is_down() -> None:
    with taken_port() as port:
        pass
    for command in ("diagnose", "runs"):
        assert_error(rankscope(command, "--store", f"http://127.0.0.1:{port}"), 3, f"127.0.0.1:{port}")


def test_port_in_use_is_reported_before_the_store_is_created(tmp_path: Path) -> None:
    with taken_port() as port:
        answer = rankscope("collect", "--store", f"embedded:{tmp_path / 'store'}", "--port", port)
        assert_error(answer, 2, f"127.0.0.1:{port}")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("address", ["mysql://x", "embedded", "clickhouse://", "clickhouse://host:port/db"])
def test_store_address_of_an_unknown_form_is_rejected(address: str) -> None:
    assert_error(rankscope("diagnose", "--store", address), 2)


def test_collector_on_all_addresses_needs_a_token(tmp_path: Path) -> None:
    answer = rankscope("collect", "--store", f"embedded:{tmp_path}", "--host", "0.0.0.0", RANKSCOPE_TOKEN="")
    assert_error(answer, 2, "needs a token")


@pytest.mark.parametrize("arguments", [("diagnose", "--wrong"), ("diagnoze",), ("diagnose", "--first-step", "x")])
def test_unknown_command_or_invalid_option_exits_with_status_2(arguments: tuple[str, ...]) -> None:
    answer = rankscope(*arguments)
    assert answer.status == 2
    assert "Traceback" not in answer.error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data", "/nowhere/text"), "/nowhere/text"),
        pytest.param(("--recipe", "nope"), "tiny_cpu", marks=pytest.mark.long),
        pytest.param(("--fault", "slow:rank=99,factor=2"), "99", marks=pytest.mark.long),
        pytest.param(("--fault", "melt:rank=1"), "melt", marks=pytest.mark.long),
        pytest.param(("--tp", "3"), "3", marks=pytest.mark.long),
    ],
)
def test_train_command_with_invalid_options_exits_with_status_2(
    arguments: tuple[str, str], words: str, tmp_path: Path
) -> None:
    assert_error(rankscope("train", *arguments, "--out", tmp_path / "out"), 2, words)


def test_demo_with_an_impossible_fault_is_rejected_and_creates_nothing(tmp_path: Path) -> None:
    assert_error(
        rankscope("demo", "--fault", "slow:rank=99,factor=2", "--out", tmp_path / "out"), 2, "no rank 99", "0 to 7"
    )
    assert not (tmp_path / "out").exists()


def test_window_without_stored_steps_is_reported_with_the_stored_steps(spool_of_a_run: Path) -> None:
    answer = rankscope("diagnose", "--spool", spool_of_a_run, "--first-step", 100)
    assert_error(answer, 2, "no completed step from 100 on\n", "steps 0 to 9 are stored")


def test_diagnose_rejects_watch_together_with_spool(spool_of_a_run: Path) -> None:
    assert_error(rankscope("diagnose", "--spool", spool_of_a_run, "--watch"), 2, "--watch does not work with --spool")


def test_spool_whose_records_were_sent_and_deleted_is_an_error(spool_of_a_run: Path) -> None:
    for folder in find_rank_dirs(spool_of_a_run):
        ShippingPage(folder).acknowledge(RankReader(folder).end_seq(0))
        for segment in folder.glob("*.rec"):
            segment.unlink()
    assert_error(rankscope("diagnose", "--spool", spool_of_a_run), 2, "sent to a collector and deleted here")


def test_runs_command_does_not_create_a_missing_store(tmp_path: Path) -> None:
    assert_error(rankscope("runs", "--store", f"embedded:{tmp_path / 'typo'}"), 2, "typo")
    assert not (tmp_path / "typo").exists()
