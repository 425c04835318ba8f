"""The meaning of an Xid: NVIDIA's numbers for errors that its driver reports, as dated data in ``xid.toml``.

meaning_of(79)  ->  fatal, RESTART_BM, "the GPU fell off the bus"
meaning_of(4711) -> service, CONTACT_SUPPORT, "unknown to this catalogue": newer drivers have newer numbers
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cache
from importlib.resources import files


class XidSeverity(StrEnum):
    """The effect of an Xid on the job that runs on the GPU."""

    FATAL = "fatal"
    """The job ends, or the GPU cannot be used before a reset."""
    SERVICE = "service"
    """The job continues. The GPU needs a reset or a check soon."""
    APPLICATION = "application"
    """Usually a fault of the application. The GPU is healthy."""
    INFORMATIONAL = "informational"


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """A number and its meaning."""

    number: int
    name: str
    severity: XidSeverity
    action: str
    """NVIDIA's name for the immediate action: ``RESTART_APP``, ``RESET_GPU``, ``RESTART_BM`` (the machine) ..."""
    known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class XidCatalogue:
    """All numbers, with the date and the sources of the catalogue."""

    dated: date
    sources: tuple[str, ...]
    xids: Mapping[int, Xid]
    unused: frozenset[int]


@cache
def xid_catalogue() -> XidCatalogue:
    """The catalogue that comes with the package."""
    table = tomllib.loads((files("telemetry") / "xid.toml").read_text("utf-8"))
    xids = [
        Xid(number=row["number"], name=row["name"], severity=XidSeverity(row["severity"]), action=row["action"])
        for row in table["xid"]
    ]
    return XidCatalogue(
        dated=table["dated"],
        sources=tuple(table["sources"]),
        xids={xid.number: xid for xid in xids},
        unused=frozenset(table["unused"]),
    )


def meaning_of(number: int) -> Xid:
    """The meaning of an Xid. An unknown number has the severity ``service`` and the action ``CONTACT_SUPPORT``."""
    return xid_catalogue().xids.get(number) or Xid(
        number=number,
        name="unknown to this catalogue",
        severity=XidSeverity.SERVICE,
        action="CONTACT_SUPPORT",
        known=False,
    )
