"""Counters of hosts: they start anywhere and grow; one that falls has begun anew."""

import numpy as np

from diagnose.fleet import FloatVector, HostSeries


def total_growth(series: HostSeries) -> FloatVector:
    """By how much a counter has grown since its first look, at each look."""
    if not len(series.value):
        return np.zeros(0)
    return np.concatenate([[0.0], np.cumsum(np.maximum(np.diff(series.value), 0.0))])
