"""The front door: record what every rank of a training job does.

    import rankscope
    from rankscope import Stage

    rankscope.start("my-run", collector="http://127.0.0.1:8719")
    for number, batch in enumerate(loader):
        with rankscope.step(number):
            with rankscope.span(Stage.FORWARD_COMPUTE):
                loss = model(batch)
            rankscope.sample("loss", loss.item())
    rankscope.stop()

Everything works (and does nothing, cheaply) before ``start`` and after ``stop``. Nothing here raises into training,
blocks it, or synchronises a device; what cannot be kept is dropped and counted. Spans nest and belong to the thread
that trains; other threads use :func:`record_span`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from telemetry.record.api import (
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

if not TYPE_CHECKING:  # a type checker would take any name as one of this module

    def __getattr__(name):
        """A name of ``__all__``, on first use: modules below this package must not load the recorder and NumPy."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        api = import_module("telemetry.record.api")
        globals().update({each: getattr(api, each) for each in __all__})
        return globals()[name]
