"""The result of one check of `rankscope doctor` whose value is a text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check of this machine, or of the settings of a job."""

    name: str
    fit: bool
    found: str
    hint: str = ""
