"""Along which axes of the mesh the members of a collective lie: as it was recorded (``peer``, see
``telemetry/topology.py``), or as its stage implies."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import ABSENT, Int64s, Operations
from telemetry.named_groups import settled
from telemetry.stages import Stage, StageClass, Stream
from telemetry.topology import GROUP_BASE, Topology, masks_of_peers

NO_GROUP = 0
"""A mask without axes."""
TRANSFERS = (
    Stage.FORWARD_SEND,
    Stage.FORWARD_RECV,
    Stage.BACKWARD_SEND,
    Stage.BACKWARD_RECV,
    Stage.CP_SEND_RECV,
)
"""Between two ranks."""


def recorded_masks(peer: npt.NDArray[np.signedinteger], topology: Topology) -> Int64s:
    """The mask of each group code, shape as given; ``NO_GROUP`` for ranks, and for axes that the mesh does not have."""
    mask = masks_of_peers(settled(peer, topology))
    return np.where(mask <= topology.whole_mask, mask, NO_GROUP)


def usual_mask(stage: Stage, topology: Topology) -> int:
    """The axes along which a stage's members lie where nothing was recorded: parameters and gradients along all axes
    but pp and tp, and so does the gradient norm as far as it is looked at; the others along the axis in their name.
    As in recorded masks there is no axis of degree 1.
    ``NO_GROUP`` for transfers, and for the reduction of embeddings, whose members are the ends of a pipeline."""
    if stage in TRANSFERS or stage is Stage.EMBEDDING_GRADS_ALL_REDUCE:
        return NO_GROUP
    if stage is not Stage.OPTIMIZER_CLIP and stage.stage_class is not StageClass.COMMUNICATION:
        return NO_GROUP
    axis = {Stream.TP: "tp", Stream.CP: "cp", Stream.EP: "ep"}.get(stage.stream)
    return topology.replica_mask if axis is None else topology.wide_mask(axis)


def by_mask(stage: Stage, one: Operations, topology: Topology) -> Iterator[tuple[int, Int64s]]:
    """Each mask of a stage's operations with the durations of those along it, [steps, occurrences, ranks]; -1 where
    there is none. Operations of one mask are numbered by themselves where a stage has several."""
    usual = usual_mask(stage, topology)
    if not (one.peer < GROUP_BASE).any():
        yield usual, one.duration_ns
        return
    recorded = recorded_masks(one.peer, topology)
    masks = np.where(recorded != NO_GROUP, recorded, usual)
    numbers = np.flatnonzero(np.bincount(masks[one.present]))
    for mask in numbers.tolist():
        duration = np.where(masks == mask, one.duration_ns, ABSENT)
        yield mask, duration if len(numbers) == 1 else _numbered(duration)


def _numbered(duration_ns: Int64s) -> Int64s:
    """The operations of each rank and step moved to the front, in order."""
    order = np.argsort(duration_ns < 0, axis=1, kind="stable")
    most = int((duration_ns >= 0).sum(axis=1).max())
    return np.take_along_axis(duration_ns, order, axis=1)[:, :most]
