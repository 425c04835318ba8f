"""The price of a GPU hour."""

import pytest

from telemetry.errors import UsageError
from tests.each_case import each_case
from ui.dashboard.records import VARIABLE, price_from_environment


@each_case(
    ("text", "hours", "told"),
    [("2.10 EUR", 10, "21.00 EUR"), ("2.5", 2, "5.00"), ("3 $", 1e6, "3,000,000 $"), ("0 EUR", 5, "0.00 EUR")],
)
def test_a_price_is_a_number_and_a_currency(text: str, hours: float, told: str) -> None:
    price = price_from_environment({VARIABLE: text})
    assert price is not None
    assert price.of(hours) == told


def test_missing_or_blank_price_is_none() -> None:
    assert price_from_environment({}) is None
    assert price_from_environment({VARIABLE: " "}) is None


@each_case("text", ["EUR 2", "-1", "nan", "inf", "2,10 EUR", "1 a currency that never ends"])
def test_invalid_price_raises_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=VARIABLE):
        price_from_environment({VARIABLE: text})
