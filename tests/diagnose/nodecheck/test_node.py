"""What is measured is slow only in comparison: with an expectation, or with enough parts of the same kind."""

from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.nodecheck.node import EXPECTABLE, compared, read_expectations
from diagnose.nodecheck.result import CheckResult, Verdict, failed, measured, skipped
from telemetry.errors import UsageError


def on_gpus(*tflops: float, spread: float = 0.1) -> list[CheckResult]:
    """The same product on GPUs of one kind."""
    one = measured("gemm", "", "gemm_tflops", [1.0], alike="H100")
    return [replace(one, subject=f"cuda:{index}", value=value, spread=spread) for index, value in enumerate(tflops)]


def verdicts(results: list[CheckResult], expectations: dict[str, float] | None = None) -> list[Verdict]:
    return [one.verdict for one in compared(results, expectations or {})]


GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "node-checks.md"
OK, SLOW, MEASURED = Verdict.OK, Verdict.SLOW, Verdict.MEASURED


def test_the_one_part_far_below_its_equals_is_slow() -> None:
    assert verdicts(on_gpus(600, 602, 598, 450, 601)) == [OK, OK, OK, SLOW, OK]


def test_it_says_what_its_equals_reach() -> None:
    slow = compared(on_gpus(600, 602, 598, 450), {})[3]
    assert (slow.expected, slow.detail) == (599, "median of 4 similar parts: 599")


def test_equals_that_scatter_are_all_in_order() -> None:
    assert set(verdicts(on_gpus(1.0, 1.3, 0.8, 1.1, 0.9, 0.7))) == {OK}


def test_a_part_whose_own_repetitions_scatter_as_widely_is_in_order() -> None:
    assert verdicts(on_gpus(600, 602, 598, 450, spread=30)) == [OK] * 4


def test_less_than_ten_percent_is_no_matter() -> None:
    assert verdicts(on_gpus(600, 600, 600, 560)) == [OK] * 4


def test_of_two_equals_nobody_knows_which_is_slow() -> None:
    assert verdicts(on_gpus(600, 300)) == [MEASURED] * 2


def test_parts_of_another_kind_are_no_equals() -> None:
    others = [replace(one, alike="A100") for one in on_gpus(200, 201)]
    assert verdicts([*on_gpus(600, 601), *others]) == [MEASURED] * 4


def test_an_expectation_goes_before_equals() -> None:
    assert verdicts(on_gpus(600, 602, 598, 450), {"gemm_tflops": 599}) == [OK, OK, SLOW, SLOW]


def test_what_failed_or_was_skipped_stays_so() -> None:
    results = [failed("gemm", "cpu", "wrong"), skipped("disk", "/", "none")]
    assert list(compared(results, {"gemm_tflops": 1, "disk_write_gb_s": 1})) == results


def test_a_file_of_expectations_is_read(tmp_path: Path) -> None:
    (tmp_path / "expect.toml").write_text("gemm_tflops = 600\ndisk_write_gb_s = 1.5\n")
    assert read_expectations(tmp_path / "expect.toml") == {"gemm_tflops": 600, "disk_write_gb_s": 1.5}


def test_the_guide_names_every_expectation(tmp_path: Path) -> None:
    example = GUIDE.read_text().partition("```\n# expect.toml")[2].partition("```")[0]
    (tmp_path / "expect.toml").write_text(f"#{example}")
    assert set(read_expectations(tmp_path / "expect.toml")) == set(EXPECTABLE)


@pytest.mark.parametrize(
    ("text", "words"),
    [("gem_tflops = 600", "gem_tflops"), ("gemm_tflops = -1", "positive"), ("gemm_tflops = true", "positive")],
)
def test_an_expectation_of_nothing_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "expect.toml").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_expectations(tmp_path / "expect.toml")


@pytest.mark.parametrize("text", ["gemm_tflops", None], ids=["no TOML", "no file"])
def test_expectations_that_cannot_be_read_are_refused(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "expect.toml").write_text(text)
    with pytest.raises(UsageError, match=r"cannot read expectations from .*expect\.toml: [A-Z]"):
        read_expectations(tmp_path / "expect.toml")
