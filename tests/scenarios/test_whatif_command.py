"""`rankscope diagnose whatif` as a user runs it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory_store import memory_store
from tests.scenarios.command import rankscope
from tests.telemetry.served import collecting

KEYS = {"slowdown", "waste", "by_stage", "by_pp", "by_dp", "by_worker", "m_w", "m_s", "replay_error", "findings"}


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The address of a collector with a run whose rank 11 is slow."""
    grid = ("--dp", 4, "--pp", 2, "--tp", 2, "--steps", 20)
    with memory_store() as made, collecting(made) as client:
        answer = rankscope("simulate", *grid, "--fault", "slow:rank=11,factor=1.5", "--store", client.url)
        assert answer.status == 0, answer.error
        yield client.url


def test_whatif_json_names_the_slow_worker_and_its_rank(store: str) -> None:
    answer = rankscope("diagnose", "whatif", "--store", store, "--json")
    assert answer.status == 1, answer.error
    printed = json.loads(answer.out)
    assert set(printed) >= KEYS
    assert printed["slowdown"] > 1.1
    assert printed["m_w"] > 0.5
    worst = max((ratio, dp, pp) for dp, row in enumerate(printed["by_worker"]) for pp, ratio in enumerate(row))
    assert worst[1:] == (2, 1)
    assert [(finding["kind"], finding["ranks"]) for finding in printed["findings"]] == [("compute-straggler", [11])]


def test_whatif_text_lists_the_possible_improvements(store: str) -> None:
    answer = rankscope("diagnose", "whatif", "--store", store)
    assert "rank 11 like its peers" in answer.out
    assert "balanced pipeline stages" in answer.out
    assert "as long as with equally fast workers" in answer.out


@pytest.mark.parametrize(
    "arguments",
    [("nobodys-run",), ("--first-step", 5, "--last-step", 2), ("--first-step", 900)],
    ids=["an unknown run", "a window the wrong way round", "steps that are not there"],
)
def test_invalid_whatif_arguments_are_reported_with_a_hint(
    store: str, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    answer = rankscope("diagnose", "whatif", *arguments, "--store", store)
    assert answer.status == 2
    assert "hint:" in answer.error
    assert "Traceback" not in answer.error
