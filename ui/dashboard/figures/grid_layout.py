"""The place of each rank of the 3D grid in the picture. Cells are as large as possible.

        pp0        pp1          a row is a data-parallel replica, a block a pipeline stage, its columns tp
dp0   [0] [1]    [2] [3]        a tall grid is folded into bands of replicas, side by side,
dp1   [4] [5]    [6] [7]        a long pipeline into lines of stages, one under the other
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from telemetry.topology import Place, Ranks, Topology

WIDTH_PX, HEIGHT_PX, CELL_PX = 1000, 560, 66
"""The largest size of a grid and of a cell."""
MIN_COLUMNS = 9
"""A small job has at least this many columns, so that its cells are not stretched."""
GAIN = 1.1
"""Folding must enlarge cells by at least this factor."""
MAX_FOLDS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLayout:
    """The position of each rank in the picture."""

    topology: Topology
    dp_a_band: int
    pp_a_line: int

    @property
    def block(self) -> int:
        """Columns from one pipeline stage to the next."""
        return self.topology.tp + (1 if self.topology.tp > 1 else 0)

    @property
    def band(self) -> int:
        """Columns from one band to the next."""
        return self.pp_a_line * self.block + 1

    @property
    def num_bands(self) -> int:
        return -(-self.topology.dp // self.dp_a_band)

    @property
    def num_lines(self) -> int:
        return -(-self.topology.pp // self.pp_a_line)

    @property
    def columns(self) -> int:
        last_gap = self.block - self.topology.tp
        return self.num_bands * self.band - 1 - last_gap

    @property
    def rows(self) -> int:
        return self.num_lines * (self.dp_a_band + 1) - 1

    @property
    def cell_px(self) -> float:
        return min(WIDTH_PX / max(self.columns, MIN_COLUMNS), HEIGHT_PX / self.rows, CELL_PX)

    def at(self, place: Place) -> tuple[int, int]:
        """Row and column of a place."""
        row, column = self.rows_and_columns(*(np.array([index]) for index in place))
        return int(row[0]), int(column[0])

    def rows_and_columns(self, dp: Ranks, pp: Ranks, tp: Ranks) -> tuple[Ranks, Ranks]:
        """Rows and columns of several places."""
        row = pp // self.pp_a_line * (self.dp_a_band + 1) + dp % self.dp_a_band
        within = pp % self.pp_a_line * self.block + tp
        return row, dp // self.dp_a_band * self.band + within


@lru_cache(maxsize=64)
def lay_out(topology: Topology) -> GridLayout:
    """The layout with the largest cells. A layout with more folds is used only if it enlarges cells by ``GAIN``."""
    best = GridLayout(topology=topology, dp_a_band=topology.dp, pp_a_line=topology.pp)
    for dp_a_band in _folds(topology.dp):
        for pp_a_line in _folds(topology.pp):
            tried = GridLayout(topology=topology, dp_a_band=dp_a_band, pp_a_line=pp_a_line)
            if tried.cell_px > GAIN * best.cell_px:
                best = tried
    return best


def _folds(degree: int) -> list[int]:
    """Sizes of the parts if ``degree`` is divided into 1, 2, 3 ... parts, descending."""
    return sorted({-(-degree // parts) for parts in range(1, min(degree, MAX_FOLDS) + 1)}, reverse=True)
