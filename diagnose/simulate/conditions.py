"""What a run meets on its way: factors and delays that faults put where they strike.

    rank 3 slow from step 1 on        work[step, rank]     1.0 1.0 1.0 1.0
                                                           1.0 1.0 1.0 1.4
                                                           1.0 1.0 1.0 1.4

A healthy run has factors of one and delays of nothing. Faults multiply and add, so they can be combined.
"""

from dataclasses import dataclass, field

import numpy as np

from diagnose.simulate.scene import Floats, Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A network card that has no link for a while."""

    row: int
    """Of the step."""
    ranks: tuple[int, ...]
    """Those whose network it is."""
    host: str
    device: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Arrays of [steps, ranks] unless said otherwise; made to be written into."""

    scene: Scene
    work: Floats
    """Factor on a rank's own compute: processor or GPU time."""
    wall: Floats
    """Factor on the wall time of the same compute, on top: a core that others take."""
    sequences: Floats
    """Factor on the compute of a microbatch in a replica: [steps, dp, microbatches]."""
    dp_link: Floats
    """Factor on data-parallel collectives; the slowest member's counts."""
    pp_link: Floats
    """Factor on transfers between pipeline stages; the slower side's counts."""
    silence_s: Floats
    """Seconds for which a rank's network is gone in that step."""
    data_s: Floats
    """Seconds by which a rank's data comes late."""
    launch_s: Floats
    """Seconds by which a rank launches its gradients' collective late."""
    collection_s: Floats
    """Seconds of garbage collection inside one forward of the step."""
    collection_in: Floats
    """Which forward of the step that is."""
    write: Floats
    """Factor on the writing of a checkpoint."""
    loss: Floats
    """Added to the loss, [steps]."""
    gradient_norm: Floats
    """Factor on the norm of the gradient, [steps]."""
    silences: list[Silence] = field(default_factory=list)
    """Whose network is silent in ``silence_s``, card by card."""
    held_down: dict[str, Floats] = field(default_factory=dict)
    """Counter of a GPU's throttling -> the part of ``work`` that is due to it."""

    def held_down_by(self, counter: str) -> Floats:
        """The factor of one counter, to be written into."""
        return self.held_down.setdefault(counter, np.ones_like(self.work))


def healthy(scene: Scene) -> Conditions:
    """Conditions without any fault."""
    ranks = (scene.num_steps, scene.topology.world_size)
    return Conditions(
        scene=scene,
        work=np.ones(ranks),
        wall=np.ones(ranks),
        sequences=np.ones((scene.num_steps, scene.topology.dp, scene.num_microbatches)),
        dp_link=np.ones(ranks),
        pp_link=np.ones(ranks),
        silence_s=np.zeros(ranks),
        data_s=np.zeros(ranks),
        launch_s=np.zeros(ranks),
        collection_s=np.zeros(ranks),
        collection_in=np.zeros(ranks),
        write=np.ones(ranks),
        loss=np.zeros(scene.num_steps),
        gradient_norm=np.ones(scene.num_steps),
    )
