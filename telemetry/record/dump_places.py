"""Where torch writes the flight recorder of this process when a collective times out.

    variable                          default (followed by the rank)                   torch
    TORCH_FR_DUMP_TEMP_FILE           $XDG_CACHE_HOME/torch/comm_lib_trace_rank_       since 2.9
    TORCH_NCCL_DEBUG_INFO_TEMP_FILE   $HOME/.cache/torch/nccl_trace_rank_              2.8
                                      /tmp/nccl_trace_rank_                            before
    TORCHCOMM_FR_DUMP_TEMP_FILE       $HOME/.cache/torchcomm_fr_trace_                 torchcomms

The current environment of another process cannot be read, so the rank itself records the places. Source:
``DebugInfoWriter::getWriter`` in torch/csrc/distributed/c10d (FlightRecorder.cpp, later FlightRecorderDetail).
"""

import json
import os
from collections.abc import Iterator, Mapping

META_KEY = "flight_dumps"
"""Key in the identity's ``meta``: a JSON list of absolute paths."""
_FLIGHT_RECORDER = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Newer torch reads the second where the first is not set; older torch knows the second alone."""
_TORCHCOMMS = "TORCHCOMM_FR_DUMP_TEMP_FILE"
_DYNAMIC = {
    "TORCH_FR_DUMP_TEMP_FILE": "TORCH_FR_DUMP_DYNAMIC_FILE_NAME",
    "TORCHCOMM_FR_DUMP_TEMP_FILE": "TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME",
}
"""With it the file's name is the variable's value, without the rank."""


def dump_places(rank: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What to add to the identity's ``meta``. Never raises."""
    try:
        places = [os.path.abspath(place) for place in _places(rank, environment)]
    except (OSError, ValueError):  # the working directory is gone
        return {}
    return {META_KEY: json.dumps(list(dict.fromkeys(places)))}


def _places(rank: int, environment: Mapping[str, str]) -> Iterator[str]:
    home = environment.get("HOME") or "/tmp"
    cache = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    yield from _chosen(_FLIGHT_RECORDER, rank, environment) or (
        f"{cache}/torch/comm_lib_trace_rank_{rank}",
        f"{home}/.cache/torch/comm_lib_trace_rank_{rank}",
        f"{home}/.cache/torch/nccl_trace_rank_{rank}",
        f"/tmp/nccl_trace_rank_{rank}",
    )
    yield from _chosen((_TORCHCOMMS,), rank, environment) or (f"{home}/.cache/torchcomm_fr_trace_{rank}",)


def _chosen(names: tuple[str, ...], rank: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """By the variables that are set."""
    found: list[str] = []
    for name in names:
        prefix = environment.get(name)
        if prefix:
            found.append(f"{prefix}{rank}")
            if environment.get(_DYNAMIC.get(name, "")):
                found.append(prefix)
    return tuple(found)
