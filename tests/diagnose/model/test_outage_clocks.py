"""Link losses are compared with operations of other hosts on aligned clocks, if the clocks are known."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from diagnose.model.outage_effect import with_effects
from diagnose.model.outages import Effect
from diagnose.model.view import RunView
from telemetry.clocks.align_evidence import REFERENCE, ClockTable, HostClock, Shift
from telemetry.host_metrics import Happening
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_fleet import BEGAN_NS, made_event, made_fleet, timed
from tests.diagnose.made_operations import around, make_operations
from tests.diagnose.made_view import make_view

SECOND_NS = 1_000_000_000
GRID = Topology(dp=4)
HOSTS = ("h0", "h1", "h2", "h3")
NUM_STEPS, ROW = 30, 12
STAGES = (Stage.GRADS_REDUCE_SCATTER, Stage.GRADS_ALL_REDUCE)


def job(held_from_s: npt.NDArray[np.float64], ahead_s: npt.NDArray[np.float64]) -> RunView:
    """Steps of ten seconds. In step ``ROW``, h2 loses its link for two seconds.

    The reduction of each rank stalls for two seconds, ``held_from_s`` after the link loss. The clock of each host is
    ``ahead_s`` ahead.
    """
    view = timed(
        replace(make_view(GRID, num_steps=NUM_STEPS), hosts=HOSTS, step_ns=np.full(NUM_STEPS, 10.0 * SECOND_NS))
    )
    assert view.step_start_ns is not None
    duration_ns = around(30e6, (NUM_STEPS, GRID.world_size), jitter=0.1, seed=0)
    start_ns = (view.step_start_ns + SECOND_NS)[:, None] + np.zeros_like(duration_ns)
    duration_ns[ROW] += 2.0 * SECOND_NS
    start_ns[ROW] += held_from_s * SECOND_NS
    down_ns = int(view.step_start_ns[ROW] + 1.01 * SECOND_NS + ahead_s[2] * SECOND_NS)
    fleet = made_fleet(
        made_event(Happening.LINK_DOWN, "h2", "eth0", at_ns=down_ns),
        made_event(Happening.LINK_UP, "h2", "eth0", at_ns=down_ns + 2 * SECOND_NS),
        seen_ns=int(view.step_start_ns[-1]) + 100 * SECOND_NS,
    )
    operations = {Stage.GRADS_REDUCE_SCATTER: make_operations(duration_ns, start_ns + ahead_s * SECOND_NS)}
    return replace(view, operations=operations, fleet=fleet)


class CountedClocks(ClockTable):
    """Counts how often the offset between two hosts is looked up."""

    num_lookups = 0

    def between(self, host: str, other: str, at_ns: int) -> Shift | None:
        self.num_lookups += 1
        return super().between(host, other, at_ns)


def clocks(ahead_s: npt.NDArray[np.float64]) -> ClockTable:
    return ClockTable(
        HostClock(
            host=host,
            reference="h0",
            first_ns=BEGAN_NS,
            last_ns=BEGAN_NS + NUM_STEPS * 10 * SECOND_NS,
            offset_ns=round((by_s - ahead_s[0]) * SECOND_NS),
            bound_ns=100_000,
            method=REFERENCE if host == "h0" else "ends",
        )
        for host, by_s in zip(HOSTS, ahead_s, strict=True)
    )


def effect(view: RunView) -> Effect:
    (one,) = with_effects(view).effects
    return one


def test_stalled_ranks_are_found_with_aligned_clocks_despite_large_clock_offsets() -> None:
    ahead_s = np.array([0.0, 25.0, 3.0, -40.0])
    view = job(np.zeros(4), ahead_s)
    assert effect(view).held_up == (0, 2)  # raw stamps find no stall that is more than five seconds away
    assert effect(replace(view, clocks=clocks(ahead_s))).held_up == (0, 1, 2, 3)


def test_stall_after_the_link_is_back_is_not_attributed_to_it_with_aligned_clocks() -> None:
    """Clocks that are not aligned may differ by five seconds. Within this tolerance, the stall counts."""
    view = job(np.array([3.5, 0.0, 0.0, 0.0]), np.zeros(4))
    assert effect(view).held_up == (0, 1, 2, 3)
    assert effect(replace(view, clocks=clocks(np.zeros(4)))).held_up == (1, 2, 3)


def test_hosts_with_rejected_clock_estimates_keep_the_tolerance_of_raw_stamps() -> None:
    view = job(np.array([3.5, 0.0, 0.0, 0.0]), np.zeros(4))
    refused = [HostClock(host=host, reference="h1") for host in HOSTS]
    assert effect(replace(view, clocks=ClockTable(refused))).held_up == (0, 1, 2, 3)


def test_clock_of_each_host_is_looked_up_once_for_a_link_loss() -> None:
    """A lookup for each stage took a minute with 12,288 ranks on 1,536 hosts."""
    view = job(np.zeros(4), np.zeros(4))
    (reduction,) = view.operations.values()
    view = replace(view, clocks=CountedClocks(), operations={stage: reduction for stage in STAGES})
    assert effect(view).held_up == (0, 1, 2, 3)
    assert view.clocks.num_lookups == len(HOSTS)
