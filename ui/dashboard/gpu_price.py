"""The price of a GPU hour, from RANKSCOPE_GPU_HOUR_PRICE, such as ``2.10`` or ``2.10 EUR``."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from telemetry.errors import UsageError

VARIABLE = "RANKSCOPE_GPU_HOUR_PRICE"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """A price of one GPU for one hour."""

    an_hour: float
    currency: str
    """As people write it after the number; may be empty."""

    def of(self, gpu_hours: float) -> str:
        """``1,234 EUR``."""
        cost = self.an_hour * gpu_hours
        number = f"{cost:,.0f}" if cost >= 100 else f"{cost:,.2f}"
        return f"{number} {self.currency}".rstrip()


def price_from_environment(environment: Mapping[str, str] = os.environ) -> GpuPrice | None:
    """None where no price is given.

    Raises:
        UsageError: what is given is no price.
    """
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    number, _, currency = text.partition(" ")
    try:
        an_hour = float(number)
    except ValueError:
        an_hour = math.nan
    if not 0 <= an_hour < math.inf or len(currency) > 12:
        raise UsageError(f"{VARIABLE} is {text!r}", hint='a number from 0, optionally with a currency: "2.10 EUR"')
    return GpuPrice(an_hour=an_hour, currency=currency.strip())
