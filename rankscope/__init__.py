"""Record what every rank of a training job does.

    import rankscope
    from rankscope import Stage

    rankscope.start("my-run", collector="http://127.0.0.1:8719")
    for number, batch in enumerate(loader):
        with rankscope.step(number):
            with rankscope.span(Stage.FORWARD_COMPUTE):
                loss = model(batch)
            rankscope.sample("loss", loss.item())
    rankscope.stop()

Before ``start`` and after ``stop`` these functions do nothing, at almost no cost. None of them raises into training,
blocks it or synchronises a device. What cannot be kept is dropped and counted. Spans nest, and belong to the thread
that trains; other threads use :func:`record_span`.
"""

from rankscope.shadowing import check_own_packages

check_own_packages()

from telemetry.record.api import (  # noqa: E402 - a file of the user with the name telemetry must not run first
    Stage,
    Topology,
    mark,
    record_span,
    sample,
    span,
    start,
    step,
    stop,
)
from telemetry.version import __version__  # noqa: E402

__all__ = [
    "Stage",
    "Topology",
    "__version__",
    "mark",
    "record_span",
    "sample",
    "span",
    "start",
    "step",
    "stop",
]
