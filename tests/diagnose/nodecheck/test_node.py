"""A part is slow compared with an expectation, or with enough parts of the same kind."""

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


def test_part_far_below_similar_parts_is_slow() -> None:
    assert verdicts(on_gpus(600, 602, 598, 450, 601)) == [OK, OK, OK, SLOW, OK]


def test_slow_result_shows_the_median_of_similar_parts() -> None:
    slow = compared(on_gpus(600, 602, 598, 450), {})[3]
    assert (slow.expected, slow.detail) == (599, "median of 4 similar parts: 599")


def test_no_part_is_slow_when_similar_parts_scatter() -> None:
    assert set(verdicts(on_gpus(1.0, 1.3, 0.8, 1.1, 0.9, 0.7))) == {OK}


def test_part_is_not_slow_when_its_own_repetitions_scatter_as_widely() -> None:
    assert verdicts(on_gpus(600, 602, 598, 450, spread=30)) == [OK] * 4


def test_part_less_than_ten_percent_below_similar_parts_is_not_slow() -> None:
    assert verdicts(on_gpus(600, 600, 600, 560)) == [OK] * 4


def test_two_similar_parts_are_too_few_to_find_a_slow_one() -> None:
    assert verdicts(on_gpus(600, 300)) == [MEASURED] * 2


def test_parts_of_different_kinds_are_not_compared() -> None:
    others = [replace(one, alike="A100") for one in on_gpus(200, 201)]
    assert verdicts([*on_gpus(600, 601), *others]) == [MEASURED] * 4


def test_expectation_takes_precedence_over_similar_parts() -> None:
    assert verdicts(on_gpus(600, 602, 598, 450), {"gemm_tflops": 599}) == [OK, OK, SLOW, SLOW]


def test_comparison_does_not_change_failed_and_skipped_results() -> None:
    results = [failed("gemm", "cpu", "wrong"), skipped("disk", "/", "none")]
    assert list(compared(results, {"gemm_tflops": 1, "disk_write_gb_s": 1})) == results


def test_expectations_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "expect.toml").write_text("gemm_tflops = 600\ndisk_write_gb_s = 1.5\n")
    assert read_expectations(tmp_path / "expect.toml") == {"gemm_tflops": 600, "disk_write_gb_s": 1.5}


def test_example_in_the_guide_lists_every_expectation(tmp_path: Path) -> None:
    example = GUIDE.read_text().partition("```\n# expect.toml")[2].partition("```")[0]
    (tmp_path / "expect.toml").write_text(f"#{example}")
    assert set(read_expectations(tmp_path / "expect.toml")) == set(EXPECTABLE)


@pytest.mark.parametrize(
    ("text", "words"),
    [("gem_tflops = 600", "gem_tflops"), ("gemm_tflops = -1", "positive"), ("gemm_tflops = true", "positive")],
)
def test_unknown_or_invalid_expectation_is_rejected(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "expect.toml").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_expectations(tmp_path / "expect.toml")


@pytest.mark.parametrize("text", ["gemm_tflops", None], ids=["no TOML", "no file"])
def test_unreadable_expectations_file_is_rejected(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "expect.toml").write_text(text)
    with pytest.raises(UsageError, match=r"cannot read expectations from .*expect\.toml: [A-Z]"):
        read_expectations(tmp_path / "expect.toml")
