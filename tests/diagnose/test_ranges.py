"""Many ranks in few words, and back."""

import pytest

from diagnose.ranges import fold_ranks, list_some, name_some, unfold_ranks
from telemetry.errors import UsageError


@pytest.mark.parametrize(
    ("text", "ranks"), [("0", (0,)), ("0-2, 5", (0, 1, 2, 5)), ("5,0-2,1", (0, 1, 2, 5)), (" 3 - 4 ", (3, 4))]
)
def test_ranges_become_ranks(text: str, ranks: tuple[int, ...]) -> None:
    assert unfold_ranks(text, 6) == ranks


def test_what_is_folded_unfolds() -> None:
    assert unfold_ranks(fold_ranks([0, 1, 2, 5, 7, 8]), 9) == (0, 1, 2, 5, 7, 8)


@pytest.mark.parametrize(
    ("ranks", "named"), [(range(800, 808), "800-807"), (range(32, 12288, 64), "32, 96 ... 12256: 192 ranks")]
)
def test_many_ranks_are_named_in_few_words(ranks: range, named: str) -> None:
    assert name_some(ranks) == named


@pytest.mark.parametrize(("most", "text"), [(3, "a, b, c"), (2, "a, b and 1 more"), (1, "a and 2 more")])
def test_a_list_that_is_cut_says_so(most: int, text: str) -> None:
    assert list_some(("a", "b", "c"), most) == text


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "2-1", "0-6", "99999999999", "1,,2", "1;2", "٣"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        unfold_ranks(text, 6)
