"""Lists of ranks as short text, and back."""

import pytest

from diagnose.ranges import fold_ranks, list_some, name_some, unfold_ranks
from telemetry.errors import UsageError
from tests.each_case import each_case


@each_case(("text", "ranks"), [("0", (0,)), ("0-2, 5", (0, 1, 2, 5)), ("5,0-2,1", (0, 1, 2, 5)), (" 3 - 4 ", (3, 4))])
def test_text_of_ranges_is_unfolded_to_ranks(text: str, ranks: tuple[int, ...]) -> None:
    assert unfold_ranks(text, 6) == ranks


def test_folded_ranks_unfold_to_the_same_ranks() -> None:
    assert unfold_ranks(fold_ranks([0, 1, 2, 5, 7, 8]), 9) == (0, 1, 2, 5, 7, 8)


@pytest.mark.parametrize(
    ("ranks", "named"), [(range(800, 808), "800-807"), (range(32, 12288, 64), "32, 96 ... 12256: 192 ranks")]
)
def test_many_ranks_are_named_by_a_range_or_a_count(ranks: range, named: str) -> None:
    assert name_some(ranks) == named


@each_case(("most", "text"), [(3, "a, b, c"), (2, "a, b and 1 more"), (1, "a and 2 more")])
def test_shortened_list_shows_how_many_are_left_out(most: int, text: str) -> None:
    assert list_some(("a", "b", "c"), most) == text


@each_case(
    ("text", "words"), [("6", "there is no rank 6"), ("1,4-9", "there is no rank 9"), ("3-1", "3 is larger than 1")]
)
def test_error_shows_which_rank_or_range_is_wrong(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        unfold_ranks(text, 6)


@each_case("text", ["", "a", "1-", "-1", "2-1", "0-6", "99999999999", "1,,2", "1;2", "٣"])
def test_invalid_text_of_ranks_is_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        unfold_ranks(text, 6)
