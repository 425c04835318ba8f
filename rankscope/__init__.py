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
blocks it or synchronises a device. Records that cannot be kept are dropped and counted. Spans nest, and belong to
the thread that trains; other threads use :func:`record_span`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rankscope.shadowing import check_own_packages

if TYPE_CHECKING:
    from telemetry.record.session import Stage, Topology, mark, record_span, sample, span, start, step, stop
    from telemetry.version import __version__

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

check_own_packages("telemetry")

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name):
        """The object with a name of ``__all__``.

        It is imported on first use: the command imports this package, and must not load the recorder.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module("telemetry.version" if name == "__version__" else "telemetry.record.session")
        globals()[name] = getattr(module, name)
        return globals()[name]
