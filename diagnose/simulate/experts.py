"""Experts inside a forward or backward: tokens go to the ranks of their experts, and back.

    rank 0   |= attention =|-- all-to-all --|= experts =|~~~~~~~~~~~~~|-- all-to-all --|
    rank 1   |= attention ==|- all-to-all --|======= experts =========|-- all-to-all --|    more tokens, more time

All members of an expert group end an exchange together. Each rank sends the same number of tokens. A rank receives as
many as the router sends to its experts, and in the second exchange what it had sent.
"""

from collections.abc import Callable

import numpy as np

from diagnose.model.operations import Int64s
from diagnose.simulate.layers import Groups, InnerCollective
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.scene import Conditions, Floats
from diagnose.whatif.replay import Lane
from telemetry.stages import Stage

EXPERT_SHARE = 0.6
"""Share of the compute time that is in proportion to the tokens of a rank."""
TOKENS_BYTES = 4096 * 2048 * 2
"""Bytes that each rank sends in an exchange."""
LASTING_SPREAD, STEP_SPREAD = 0.05, 0.04
"""Natural differences of the load between ranks: over the whole run, and in each step."""
LOAD_DRAW = 5


def loads_of(plan: SimulatedRun, conditions: Conditions, draws: Draws) -> Floats:
    """Tokens that the experts of each rank receive relative to the mean of its expert group, [steps, ranks]."""
    random, shape = draws.of(LOAD_DRAW), (plan.num_steps, plan.topology.world_size)
    natural = random.normal(0.0, LASTING_SPREAD, shape[1]) + random.normal(0.0, STEP_SPREAD, shape)
    loads = np.exp(natural) * conditions.tokens
    members = plan.topology.members(plan.topology.wide_mask("ep"))
    loads[:, members] /= loads[:, members].mean(axis=2, keepdims=True)
    return loads


def run_experts(
    begin: Lane, wall_s: Floats, load: Floats, exchange_s: Callable[[int], Floats], groups: Groups
) -> tuple[Lane, list[tuple[InnerCollective, Int64s]]]:
    """The end of a compute that begins at ``begin``, and its exchanges with the bytes that each rank receives.

    Args:
        begin: [1, steps, dp, tp].
        wall_s: compute time at mean load, [steps, dp, tp].
        load: tokens relative to the mean, [steps, dp, tp].
        exchange_s: duration of the exchange of that number at mean load, [steps, 1, 1].
        groups: the expert groups.
    """
    sent = begin + wall_s * (1 - EXPERT_SHARE)
    longest = groups.last(load[None])
    arrived = groups.last(sent) + exchange_s(0) * longest
    done = arrived + wall_s * EXPERT_SHARE * load
    end = groups.last(done) + exchange_s(1) * longest
    received = np.rint(load * TOKENS_BYTES).astype(np.int64)
    returned = np.full_like(received, TOKENS_BYTES)
    return end, [
        (InnerCollective(stage=Stage.EP_ALL_TO_ALL, begin=sent, end=arrived), received),
        (InnerCollective(stage=Stage.EP_ALL_TO_ALL, begin=done, end=end), returned),
    ]
