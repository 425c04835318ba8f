"""`rankscope simulate`, then `rankscope diagnose`: the findings equal the truth file."""

import json
from pathlib import Path

import pytest

from tests.scenarios.command import Answer, rankscope

GRID = ("--dp", 4, "--pp", 2, "--tp", 2)


def simulated(tmp_path: Path, *arguments: object) -> Answer:
    store, truth = f"embedded:{tmp_path / 'store'}", tmp_path / "truth.json"
    return rankscope("simulate", *GRID, "--store", store, "--truth", truth, *arguments)


@pytest.mark.parametrize(
    "text",
    [
        "slow:rank=13,factor=1.3",
        pytest.param("throttle:rank=13,factor=1.4,period=80", marks=pytest.mark.long),
        pytest.param("flap:host=gpu-001", marks=pytest.mark.long),
    ],
)
def test_diagnose_finds_exactly_the_fault_of_a_simulated_run(text: str, tmp_path: Path) -> None:
    answer = simulated(tmp_path, "--fault", text, "--name", "made", "--json")
    assert answer.status == 0, answer.error
    assert answer.error == ""
    reported = json.loads(answer.out)
    (fault,) = json.loads((tmp_path / "truth.json").read_text())["faults"]
    assert reported["faults"] == [fault]
    assert (reported["run"], reported["ranks"], reported["steps"]) == ("made", 16, 40)
    verdict = rankscope("diagnose", "made", "--store", f"embedded:{tmp_path / 'store'}", "--json")
    assert verdict.status == 1, verdict.error
    (finding,) = json.loads(verdict.out)["findings"]
    assert (finding["kind"], finding["ranks"], finding["hosts"]) == (fault["kind"], fault["ranks"], fault["hosts"])


def test_diagnose_finds_nothing_in_a_healthy_simulated_run(tmp_path: Path) -> None:
    assert simulated(tmp_path, "--steps", 20).status == 0
    assert json.loads((tmp_path / "truth.json").read_text())["faults"] == []
    verdict = rankscope("diagnose", "--store", f"embedded:{tmp_path / 'store'}")
    assert (verdict.status, "nothing found" in verdict.out) == (0, True), verdict.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fault", "melt:rank=1"), "unknown fault 'melt'"),
        (("--fault", "slow:rank=99,factor=1.3"), "ranks of this grid are 0 to 15"),
        (("--fault", "slow:rank=5"), "factor= is missing"),
        (("--noise", "loud"), "recorded"),
        (("--steps", 0), "--steps is 0"),
        (("--chunks", 3, "--microbatches", 7), "must be a multiple"),
        (("--dp", 0), "dp is 0"),
        (("--name", ""), "'' is not a valid run name"),
    ],
)
def test_invalid_simulation_options_are_rejected_before_anything_is_stored(
    arguments: tuple[object, ...], words: str, tmp_path: Path
) -> None:
    answer = simulated(tmp_path, *arguments)
    assert answer.status == 2, answer.error
    assert words in answer.error
    assert "Traceback" not in answer.error
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "truth.json").exists()


@pytest.mark.parametrize("place", ["file/truth.json", "missing/truth.json"])
def test_truth_path_that_cannot_be_written_is_rejected_before_anything_is_stored(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = simulated(tmp_path, "--truth", tmp_path / place)
    assert (answer.status, "hint: use --truth" in answer.error) == (2, True), answer.error
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "missing").exists()


@pytest.mark.long
def test_simulation_under_a_stored_run_name_is_rejected(tmp_path: Path) -> None:
    assert simulated(tmp_path, "--steps", 5).status == 0
    answer = simulated(tmp_path, "--steps", 5)
    assert (answer.status, "--name" in answer.error) == (2, True), answer.error
