import pytest

from trainer.config import OptimConfig
from trainer.optim.schedule import learning_rate_at

CONFIG = OptimConfig(learning_rate=1.0, num_warmup_steps=4, num_decay_steps=100)


def test_learning_rate_rises_linearly_to_its_peak() -> None:
    assert [learning_rate_at(step, CONFIG) for step in range(5)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_learning_rate_falls_to_a_tenth_of_the_peak_and_stays_there() -> None:
    assert learning_rate_at(54, CONFIG) == pytest.approx(0.55)
    assert learning_rate_at(104, CONFIG) == pytest.approx(0.1)
    assert learning_rate_at(10_000, CONFIG) == pytest.approx(0.1)


def test_learning_rate_without_warm_up_starts_at_the_peak() -> None:
    assert learning_rate_at(0, OptimConfig(learning_rate=1.0, num_warmup_steps=0)) == pytest.approx(1.0)
