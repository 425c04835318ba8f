"""What a rank is expected to show: what its peers do."""

import numpy as np

from diagnose.model.peers import peer_median
from diagnose.model.view import FloatMatrix, RunView


def expected_of_ranks(values: FloatMatrix, view: RunView) -> FloatMatrix:
    """For each step and rank the median of the peers of its pipeline stage; of all others where it is alone there."""
    alone = np.bincount(view.pp_of_rank)[view.pp_of_rank] == 1
    everybody = np.zeros_like(view.pp_of_rank)
    return np.where(alone, peer_median(values, everybody), peer_median(values, view.pp_of_rank))
