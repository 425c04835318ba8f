"""Which ranks are compared with each other in a stage.

ratio to peers   the ranks of the same pipeline stage and role, which do the same work
wait caused      the members of the collective. No ranks are compared if operations of the stage run during compute
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnose.model.collectives import GROUP_STAGES, group_axis
from diagnose.model.operations import usual_mask
from diagnose.model.peers import peer_median
from telemetry.group_names import masks_of_peers, resolved_peers
from telemetry.stages import Stage
from telemetry.stores.queries import StageGroups
from telemetry.stores.queries.heat_map import Peers
from telemetry.topology import AXES, Axis, Topology
from ui.dashboard.data.columns import ints
from ui.dashboard.data.compute_times import runs_inside_compute
from ui.dashboard.data.core import Reads
from ui.dashboard.records import Floats, Ints, RunFacts
from ui.dashboard.view_state import Metric

GROUPS: dict[Axis, Peers] = {"dp": "dp_group", "tp": "tp_group"}
"""The peers for a collective along an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Which ranks are compared with each other."""

    peers: Peers
    mask: int = 0
    """The axes of an ``axes_group``. 0 if no ranks are compared."""

    def group_mask(self, grid: Topology) -> int:
        """The axes of the groups whose members are compared. 0 if these are not groups of a collective."""
        named = {"dp_group": grid.replica_mask, "tp_group": grid.mask("tp"), "axes_group": self.mask}
        return named.get(self.peers, 0)


NOBODY = Compared(peers="axes_group")


def compared(reads: Reads, facts: RunFacts, stage: Stage, metric: Metric, steps: Ints) -> Compared:
    """Which ranks are compared: for waiting times the members of the collective, otherwise ranks with the same work."""
    if metric is not Metric.WAIT or stage not in GROUP_STAGES:
        return Compared(peers="pipeline_rank")
    axis = group_axis(stage)
    usual = (
        Compared(peers=GROUPS[axis]) if axis else Compared(peers="axes_group", mask=usual_mask(stage, facts.topology))
    )
    if not len(steps):
        return usual
    if runs_inside_compute(reads, facts, stage, int(steps[-1])):
        return NOBODY
    num_axes = sum(degree > 1 for name, degree in facts.topology.mesh if name not in ("pp", "tp"))
    if axis == "tp" or (axis == "dp" and num_axes <= 1):
        return usual
    query = StageGroups(**facts.summary.key, stage=int(stage), first_step=int(steps[0]), last_step=int(steps[-1]))
    return compared_in(reads.ask(facts.summary, query), usual, facts.topology)


def compared_in(table: pa.Table, usual: Compared, grid: Topology) -> Compared:
    """A comparison of the members of the groups in an answer to ``StageGroups``; ``usual`` if no group was recorded.

    If the groups lie along different axes, no rank is compared: a sum over a step does not show in which group a rank
    was late.
    """
    peers = resolved_peers(ints(table, "peer"), grid)
    masks = {grid.known_mask(int(mask)) for mask in masks_of_peers(peers)} - {0}
    if not masks:
        return usual
    return Compared(peers="axes_group", mask=masks.pop()) if len(masks) == 1 else NOBODY


def ratio_to_peers(ns: Floats, facts: RunFacts, among: Compared) -> Floats:
    """``ns`` divided by the median of the peers of each rank, [steps, ranks]. NaN without a peer."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(ns / peer_median(ns, group_of_rank(among, facts.topology, facts.role_numbers)))


def group_of_rank(among: Compared, grid: Topology, role_numbers: tuple[int, ...] = ()) -> Ints:
    """A number for each rank, shape [ranks]. Ranks with the same number are peers: they also have the same role."""
    group = _group_in_mesh(among, grid)
    return group + grid.world_size * np.array(role_numbers) if role_numbers else group


def _group_in_mesh(among: Compared, grid: Topology) -> Ints:
    if among.peers == "axes_group":
        number = np.empty(grid.world_size, dtype=np.int64)
        members = grid.members(among.mask)
        number[members] = members[:, :1]
        return number
    dp, pp, tp = (grid.index[axis] for axis in AXES)
    groups = {"dp_group": pp * grid.tp + tp, "tp_group": dp * grid.pp + pp}
    return groups.get(among.peers, pp)
