"""One training on a grid that several tests read."""

from pathlib import Path

import pytest

from tests.telemetry.grid_training import PLAIN, train_grid
from tests.telemetry.recording import Recorded, recorded

Trained = tuple[Path, list[list[float]]]
"""The folder of a training and its losses."""


@pytest.fixture(scope="session")
def losses(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Trained]:
    """The same training without and with tracing."""
    folders = {traced: tmp_path_factory.mktemp("grid") for traced in (False, True)}
    return {traced: (folder, train_grid(folder, traced=traced)) for traced, folder in folders.items()}


@pytest.fixture(scope="session")
def grid(losses: dict[bool, Trained]) -> list[Recorded]:
    """What each of the eight traced ranks recorded."""
    return [recorded(losses[True][0], rank) for rank in range(PLAIN.mesh.world_size)]
