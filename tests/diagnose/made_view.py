"""Views made from a seed: healthy work, jitter, and faults where a test puts them."""

import numpy as np
import numpy.typing as npt

from diagnose.model.view import Basis, RunView, Work
from telemetry.stages import Stage
from telemetry.topology import Topology

FORWARD_NS = 40e6
BACKWARD_NS = 80e6


def make_view(
    topology: Topology,
    *,
    num_steps: int = 40,
    jitter: float = 0.03,
    rank_spread: float = 0.01,
    slow: dict[int, float] | None = None,
    slow_from_row: int = 0,
    heavy_stage: dict[int, float] | None = None,
    seed: int = 0,
) -> RunView:
    """A run with log-normal ``jitter`` a step, a lasting, uniform ``rank_spread``, and ``slow`` ranks by factor."""
    random = np.random.default_rng(seed)
    shape = (num_steps, topology.world_size)
    lasting = np.exp(random.uniform(-rank_spread, rank_spread, topology.world_size))
    factor: npt.NDArray[np.float64] = np.ones(shape)
    for rank, times in (slow or {}).items():
        factor[slow_from_row:, rank] *= times
    for rank in range(topology.world_size):
        factor[:, rank] *= (heavy_stage or {}).get(topology.place(rank).pp, 1.0)
    work = {
        stage: Work(ns=ns * lasting * factor * np.exp(random.normal(0.0, jitter, shape)), basis=Basis.PROCESSOR_TIME)
        for stage, ns in ((Stage.FORWARD_COMPUTE, FORWARD_NS), (Stage.BACKWARD_COMPUTE, BACKWARD_NS))
    }
    return RunView(
        run_id="made",
        attempt=0,
        topology=topology,
        hosts=tuple(f"gpu-{rank // 8:02d}" for rank in range(topology.world_size)),
        steps=np.arange(100, 100 + num_steps),
        step_ns=np.full(num_steps, 2 * (FORWARD_NS + BACKWARD_NS)),
        work=work,
    )
