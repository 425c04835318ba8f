"""The learning rate by step."""

import math

from trainer.config import OptimConfig

LAST_SHARE = 0.1


def learning_rate_at(step: int, config: OptimConfig) -> float:
    """The learning rate of a step: a linear rise over the warm-up, then a cosine from the peak to a tenth of it.
    ``step`` counts from 0.

    peak          .-''-.
                 /      '.
                /         '-.___   a tenth
        warm-up |  decay  |
    """
    if step < config.num_warmup_steps:
        return config.learning_rate * (step + 1) / config.num_warmup_steps
    progress = min((step - config.num_warmup_steps) / config.num_decay_steps, 1.0)
    return config.learning_rate * (LAST_SHARE + (1 - LAST_SHARE) * 0.5 * (1 + math.cos(math.pi * progress)))
