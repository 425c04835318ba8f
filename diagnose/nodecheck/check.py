"""The result of a check of `rankscope doctor` that finds a text, not a number."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check of this machine, or of the settings of a job."""

    name: str
    fit: bool
    found: str
    hint: str = ""
