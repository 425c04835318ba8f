"""`rankscope` with the recipe ``tiny``. In a driven job its ranks also wait before each step, until a file exists.

Otherwise the ranks of a driven job would use all processors until the job ends, and slow down its tests. A short job
would end before its test has killed all processes.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import trainer.rank
from tests.trainer.jobs import small_config
from tests.trainer.launchers import Launched, start_forked
from trainer.config import TrainConfig
from trainer.faults.act import Healthy
from trainer.recipes import RECIPES
from ui.cli.main import main

PACE_S = 0.75
LAST_PACED = 18
"""Before this step the ranks wait until the file exists."""
UNPACED = "RANKSCOPE_TESTS_UNPACED"
"""Environment variable: the path of the file."""


def tiny_config() -> TrainConfig:
    """Two small layers, because a test does many steps."""
    config = small_config()
    model = replace(config.model, num_layers=2, hidden_size=32, num_heads=2, sequence_length=32)
    return replace(config, recipe="tiny", model=model)


class Paced(Healthy):
    """The hooks of a rank that waits before each step."""

    def at_step(self, step: int) -> None:
        super().at_step(step)
        while not Path(os.environ[UNPACED]).exists():
            time.sleep(PACE_S)
            if step < LAST_PACED:
                break


def paced(*_: object, **__: object) -> Healthy:
    return Paced()


def start_paced(command: str, *words: str, log: Path, unpaced: Path) -> Launched:
    """Start `rankscope COMMAND --recipe tiny WORDS` in its own session."""
    words = (command, "--recipe", "tiny", *words)
    return start_forked(f"{__name__}:run", *words, log=log, **{UNPACED: str(unpaced)})


def run(*words: str) -> None:
    """In the child."""
    os.setsid()
    RECIPES["tiny"] = tiny_config
    if "drive" in words:
        trainer.rank.hook_for = paced
    sys.argv = ["rankscope", *words]
    main()
