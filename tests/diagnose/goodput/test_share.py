"""The goodput in the list of runs, calculated from sums."""

import pytest

from diagnose.goodput.share import StepSums, goodput_of_sums, wall_range, warm_up_ns
from tests.each_case import each_case

S = 1_000_000_000


def sums(first: int, last: int, *, step_s: float = 1.0, snapshot_s: float = 0.0, warm_up_s: float = 0.0) -> StepSums:
    return StepSums(
        first_step=first,
        last_step=last,
        steps_ns=((last + 1 - first) * step_s + warm_up_s) * S,
        snapshot_ns=snapshot_s * S,
        warm_up_ns=warm_up_s * S,
    )


@each_case(
    ("attempts", "wall_s", "share"),
    [
        ([sums(0, 9)], 20, 0.5),
        ([sums(0, 9), sums(6, 15)], 40, 16 / 40),
        ([sums(0, 9), None, sums(10, 19)], 40, 0.5),
        ([sums(0, 99), sums(50, 59), sums(0, 9)], 200, 100 / 200),
        ([sums(0, 9), sums(5, 14, step_s=2)], 40, (10 + 5 * 2) / 40),
        ([sums(0, 9, snapshot_s=2)], 20, 8 / 20),
        ([sums(0, 9), sums(10, 19, warm_up_s=5)], 40, 20 / 40),
        ([sums(0, 9)], 5, 1.0),
    ],
)
def test_goodput_counts_a_step_only_the_first_time_it_is_completed(
    attempts: list[StepSums | None], wall_s: int, share: float
) -> None:
    assert goodput_of_sums(attempts, wall_s * S) == pytest.approx(share)


@each_case(
    ("first_s", "all_s", "num_steps", "warm_up_s"),
    [(7, 7 + 9 * 2, 10, 5), (2.4, 2.4 + 9 * 2, 10, 0), (2.6, 2.6 + 9 * 2, 10, 0.6), (1, 19, 10, 0), (5, 5, 1, 0)],
)
def test_warm_up_is_the_extra_time_of_the_first_step_over_the_mean_of_the_others_if_it_is_clearly_longer(
    first_s: float, all_s: float, num_steps: int, warm_up_s: float
) -> None:
    assert warm_up_ns(first_s * S, all_s * S, num_steps) == pytest.approx(warm_up_s * S)


def test_goodput_is_none_without_steps_or_without_wall_time() -> None:
    assert goodput_of_sums([None, None], 10 * S) is None
    assert goodput_of_sums([sums(0, 3)], 0) is None


def test_wall_time_begins_with_the_first_driver_decision_and_ends_with_done_or_newest_data() -> None:
    assert wall_range(10, 50, None, []) == (10, 50)
    assert wall_range(10, 5000, 30, []) == (10, 40)
    assert wall_range(10, 50, 40, [(4, "check"), (12, "start")]) == (4, 50)
    assert wall_range(10, 50, 40, [(4, "check"), (45, "done")]) == (4, 45)
    assert wall_range(10, 50, 40, [(4, "check"), (70, "wait")]) == (4, 70)
