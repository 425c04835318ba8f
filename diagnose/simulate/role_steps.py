"""Steps of a reinforcement-learning job: the programs of its roles run at the same time, and end a step together.

    rollout     |= r0 =|= r1 =|== r2 ==| ... |         |     generates sequences of unequal lengths
    reward      |= F0 =|= F1 =| ...    |               |     forwards
    reference   |= F0 =|= F1 =| ...         |          |     forwards
    actor       |= F0 =|== B0 ==| ... |reduce|optimizer|     trains on the sequences of the step before
                                                  new weights: all ranks together

How long each role works in a step is a property of the job. It is drawn from the seed.
"""

from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.operations import Bools
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.recording import Book, Written
from diagnose.simulate.scene import Conditions, Floats
from telemetry.stages import Stage

ROLE_DRAW, LENGTH_DRAW = 6, 7
WORKS = {"reward": (0.55, 0.85), "reference": (0.6, 0.9), "actor": (0.7, 0.95)}
"""Range of the time that a role works, relative to the time of typical rollouts."""
LENGTH_SPREAD = 0.3
"""Standard deviation of the logarithm of the length of a rollout."""
TYPICAL_BYTES = 512 * 4
"""Size of a typical rollout: 512 tokens."""
NEW_WEIGHTS_S = 0.02


@dataclass(slots=True, eq=False)
class _Program:
    """The ranks of a role, and when each has ended its operations so far: [steps, ranks of the job, 1]."""

    plan: SimulatedRun
    book: Book
    present: Bools
    end_s: Floats

    def run(self, stage: Stage, number: int, seconds: Floats, *, together: bool = False, **details: object) -> None:
        """Add an operation after the previous one. ``together``: all ranks of the role end it together."""
        begin = self.end_s
        last = np.where(self.present, begin, 0.0).max(axis=1, keepdims=True) if together else begin
        self.end_s = np.broadcast_to(last + seconds, begin.shape)
        written = Written(stage=stage, pp=0, occurrence=number, begin_s=begin, end_s=self.end_s, present=self.present)
        self.book.add(replace(written, **details))  # type: ignore[arg-type]


def run_roles(plan: SimulatedRun, conditions: Conditions, draws: Draws, book: Book) -> Floats:
    """Run all steps. Returns the end of each rank in seconds from the begin of its step, [steps, ranks]."""
    shape = (plan.num_steps, plan.topology.world_size, 1)
    speed = (draws.ranks(*shape[:2]) * conditions.work)[:, :, None]
    target = draws.of(ROLE_DRAW)
    works = {name: float(target.uniform(*bounds)) for name, bounds in WORKS.items()}
    ended_s = np.zeros(shape)
    names = np.array(conditions.scene.roles)
    for at, role in enumerate(plan.roles):
        present = np.broadcast_to((names == role.name)[None, :, None], shape)
        program = _Program(plan=plan, book=book, present=present, end_s=np.zeros(shape))
        if role.name == "rollout":
            _generate(program, speed, conditions, draws)
        else:
            _compute(program, speed, draws, first_key=10_000 * (at + 1), name=role.name, works=works[role.name])
        ended_s = np.where(present, program.end_s, ended_s)
    last = ended_s.max(axis=(1, 2)) + NEW_WEIGHTS_S
    return np.repeat(last[:, None], plan.topology.world_size, axis=1)


def _generate(program: _Program, speed: Floats, conditions: Conditions, draws: Draws) -> None:
    """Rollouts, one after the other. In steps with a tail, the last rollout of one rank is much longer."""
    plan, shape = program.plan, speed.shape
    random = draws.of(LENGTH_DRAW)
    ranks = np.flatnonzero(program.present[0, :, 0])
    lengths = np.exp(random.normal(0.0, LENGTH_SPREAD, (plan.num_microbatches, *shape)))
    lengths[-1, np.arange(shape[0]), random.choice(ranks, shape[0]), 0] += plan.num_microbatches * (conditions.tail - 1)
    for number, length in enumerate(lengths):
        seconds = plan.seconds(Stage.ROLLOUT) * length * draws.compute(number, shape) * speed
        size = np.rint(TYPICAL_BYTES * length).astype(np.int64)
        program.run(Stage.ROLLOUT, number, seconds, microbatch=number, size_bytes=size)


def _compute(program: _Program, speed: Floats, draws: Draws, *, first_key: int, name: str, works: float) -> None:
    """The steps of a role: forwards. For the actor also backwards, the reduction of gradients and the optimizer."""
    plan, shape = program.plan, speed.shape
    stages = [Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE][: 2 if name == "actor" else 1]
    scale = works * plan.seconds(Stage.ROLLOUT) / sum(map(plan.seconds, stages))
    for number in range(plan.num_microbatches):
        for stage in stages:
            drawn = draws.compute(first_key + 2 * number + (stage is Stage.BACKWARD_COMPUTE), shape)
            program.run(stage, number, plan.seconds(stage) * scale * drawn * speed, microbatch=number)
    if name == "actor":
        spread = plan.noise.reduce_spread
        drawn = draws.transfer(first_key, (shape[0], 1, 1), spread)
        program.run(Stage.GRADS_REDUCE_SCATTER, 0, plan.seconds(Stage.GRADS_REDUCE_SCATTER) * drawn, together=True)
        program.run(Stage.OPTIMIZER, 0, plan.seconds(Stage.OPTIMIZER) * draws.compute(first_key - 1, shape) * speed)
