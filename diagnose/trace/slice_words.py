"""What is told of a slice: its name, its category, and what stands beside it, in every form of a trace."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from diagnose.model.span_columns import Ints
from diagnose.trace.drawing import RankDrawing
from telemetry.stages import STAGE_BY_CODE, StageClass

UNKNOWN = "unknown"
CATEGORIES = (*(kind.name.lower() for kind in StageClass), UNKNOWN)
WORDS = (
    "step", "microbatch", "chunk", "peer", "op_seq", "processor_ns", "bytes", "issued_before_ns", "recorded_ns",
)  # fmt: skip
"""All that :func:`words_of` may tell."""


def name_of(stage: int) -> str:
    """Label of a stage; stages of newer versions bear their code."""
    known = STAGE_BY_CODE.get(stage)
    return known.label if known else f"stage {stage}"


def category_of(stage: int) -> str:
    """Class of a stage, one of ``CATEGORIES``."""
    known = STAGE_BY_CODE.get(stage)
    return known.stage_class.name.lower() if known else UNKNOWN


def words_of(rank: RankDrawing) -> Iterator[tuple[str, Ints, npt.NDArray[np.bool_]]]:
    """Name, value of each slice, and whether there is one, in the order of ``WORDS``.

    ``issued_before_ns``: how long before its start the host asked for it. ``recorded_ns``: its duration by the clock of
    its own host, where that is another than by the reference's.
    """
    slices = rank.slices
    yield "step", slices.step, np.ones(len(slices), dtype=np.bool_)
    yield "microbatch", slices.microbatch, slices.microbatch >= 0
    yield "chunk", slices.chunk, slices.chunk >= 0
    yield "peer", slices.peer, slices.peer >= 0
    yield "op_seq", slices.op_seq, slices.op_seq > 0
    yield "processor_ns", slices.cpu_ns, slices.cpu_ns >= 0
    yield "bytes", slices.size_bytes, slices.size_bytes > 0
    yield "issued_before_ns", slices.start_ns - slices.issue_ns, slices.issue_ns > 0
    yield "recorded_ns", rank.recorded_ns, rank.recorded_ns != slices.duration_ns
