"""Cases that run as one test."""

import pytest

from tests.each_case import each_case


def test_every_failing_case_is_named_and_the_others_still_run() -> None:
    seen = []

    @each_case(("number", "word"), [(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    def is_odd(number: int, word: str) -> None:
        seen.append(word)
        if number == 4:
            pytest.fail("four")
        assert number % 2

    with pytest.raises(AssertionError, match=r"2 of 4 cases fail.*number=2, word='b'.*number=4, word='d'"):
        is_odd()
    assert seen == ["a", "b", "c", "d"]


def test_a_long_value_is_cut_in_the_name_of_its_case() -> None:
    @each_case("text", ["a" * 10_000])
    def is_short(text: str) -> None:
        assert len(text) < 10

    with pytest.raises(AssertionError, match=r"1 of 1 cases fail: .*text='a+") as raised:
        is_short()
    assert len(str(raised.value)) < 300


@each_case("number", [1, 2])
@each_case("factor", [10, 20])
def test_cases_of_two_decorators_are_combined_and_fixtures_are_passed_on(
    number: int, factor: int, request: pytest.FixtureRequest
) -> None:
    assert "number" not in request.fixturenames
    assert number * factor in (10, 20, 40)
