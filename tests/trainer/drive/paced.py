"""`rankscope` with the recipe ``small``. In a driven job its ranks also wait before each step.

    python -m tests.trainer.drive.paced drive --recipe small ...

Otherwise the ranks of a driven job would use all processors until the job ends, and slow down its tests.
"""

import sys
import time

import trainer.rank
from tests.trainer.jobs import small_config
from trainer.faults.act import Healthy
from trainer.recipes import RECIPES
from ui.cli.main import main

PACE_S = 0.25


class Paced(Healthy):
    """The hooks of a rank that waits before each step."""

    def at_step(self, step: int) -> None:
        super().at_step(step)
        time.sleep(PACE_S)


def paced(*_: object, **__: object) -> Healthy:
    return Paced()


if __name__ == "__main__":
    RECIPES["small"] = small_config
    if "drive" in sys.argv:
        trainer.rank.hook_for = paced
    main()
