"""The recorder of a training process, the agent, the collector and the stores.

Training scripts import the recorder from :mod:`rankscope`, which describes it. This package has the same names.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from telemetry.record.session import (
        STAGE_BY_LABEL,
        Session,
        SessionStats,
        Stage,
        StageClass,
        Stream,
        Topology,
        mark,
        record_span,
        sample,
        span,
        start,
        step,
        stop,
    )

__all__ = [
    "STAGE_BY_LABEL",
    "Session",
    "SessionStats",
    "Stage",
    "StageClass",
    "Stream",
    "Topology",
    "mark",
    "record_span",
    "sample",
    "span",
    "start",
    "step",
    "stop",
]

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name):
        """The object with a name of ``__all__``.

        It is imported on first use: modules below this package must not load the recorder and NumPy.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module("telemetry.record.session"), name)
        return globals()[name]
