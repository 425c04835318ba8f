"""The rules of the trials with frameworks: how slow a slowed rank is, and which results are right."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import thread_time
from types import ModuleType

import pytest
import torch
from torch import nn

from tests.scenarios.attach_trial import FRAMEWORKS, HEALTHY, JOBS, PLAIN, SLOWED, STOPPED, Found
from tests.scenarios.attach_trials import as_line, keeps_bits, plan

FACTOR = 1.5


@pytest.fixture
def injected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that training scripts import, as in the rank at fault."""
    for name, value in {"OUT": str(tmp_path), "FAULT": "slow", "RANK": "1", "FACTOR": str(FACTOR)}.items():
        monkeypatch.setenv(f"TRIAL_{name}", value)
    spec = spec_from_file_location("injected", JOBS / "injected.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_slowed_forward_ends_at_the_first_clock_read_after_factor_times_its_own_time(
    injected: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[float] = []

    def clock() -> float:
        reads.append(thread_time())
        return reads[-1]

    monkeypatch.setattr(injected, "thread_time", clock)
    model, slow = (nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256)) for _ in range(2))
    slow.load_state_dict(model.state_dict())
    injected.inject(model, 0)
    injected.inject(slow, 1)
    rows = torch.ones(256, 256)
    expected = model(rows)
    assert reads == []
    for _ in range(31):
        reads.clear()
        assert torch.equal(slow(rows), expected)
        began, ended, last_but_one, last = reads[0], reads[1], reads[-2], reads[-1]
        assert last_but_one - began < FACTOR * (ended - began) <= last - began


def test_plan_has_one_trial_of_each_kind_for_every_framework(tmp_path: Path) -> None:
    for framework in FRAMEWORKS:
        trials = plan(framework, 0, (PLAIN, HEALTHY, SLOWED, STOPPED), tmp_path)
        assert [trial.kind for trial in trials] == [PLAIN, HEALTHY, SLOWED, STOPPED]
        assert [trial.rank in range(framework.num_ranks) for trial in trials] == [False, False, True, True]


def test_losses_with_one_changed_bit_or_a_missing_file_are_not_bit_identical(tmp_path: Path) -> None:
    trials = plan(FRAMEWORKS[0], 0, (PLAIN, HEALTHY), tmp_path)
    plain, healthy = (Found(trial=trial, losses=["0x1.8p+0\n", "0x1.9p+0\n"]) for trial in trials)
    assert keeps_bits([plain, healthy])
    healthy.losses = ["0x1.8p+0\n", "0x1.90000000001p+0\n"]
    assert keeps_bits([plain, healthy]) is False
    plain.losses = healthy.losses = ["0x1.8p+0\n", ""]
    assert keeps_bits([plain, healthy]) is False


def test_trial_with_another_finding_a_missing_page_part_or_an_error_is_not_right(tmp_path: Path) -> None:
    (slowed,) = plan(FRAMEWORKS[0], 0, (SLOWED,), tmp_path)
    assert Found(trial=slowed, named=[slowed.rank]).holds
    assert not Found(trial=slowed).holds
    for wrong in ({"others": ["slow-link"]}, {"not_shown": ["timeline: optimizer"]}, {"error": "it ended"}):
        found = Found(trial=slowed, named=[slowed.rank], **wrong)  # type: ignore[arg-type]
        assert not found.holds
        assert "not right" in as_line(found)
