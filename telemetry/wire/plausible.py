"""Rejects impossible numbers before they are stored, because they would hide the rows of a later job.

announcements      an existing grid, a mesh of that grid, the rank within it, readable metadata of the run
profiles           an id, a known state, small parts
findings           an id, a known change, short texts
every time stamp   between the epoch and a day from now
rows of no folder  steps below 2**31. Rows of an announced folder are not checked: they can harm only their own run
"""

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.errors import AheadError, UsageError
from telemetry.finding_log import MAX_PLACES, MAX_TEXT, Change, is_fingerprint
from telemetry.profiles import MAX_PART_TEXT, MAX_PARTS, Phase, ProfileOutcome, is_profile_id
from telemetry.records import MAX_AHEAD_NS, topology_in
from telemetry.run_names import MAX_HOST_LENGTH
from telemetry.tables import NO_FOLDER

MAX_STEP = 2**31 - 1
_GRID = ("dp_size", "pp_size", "tp_size", "mesh")
_TIMES = (
    *("started_ns", "opened_ns", "at_ns", "beat_ns", "start_ns", "issue_ns", "began_ns"),
    *("raised_ns", "onset_ns"),
)


def check_rows(table: str, rows: pa.Table, openings: Mapping[int, int], *, now_ns: int) -> None:
    """Check that the numbers of ``rows`` are possible for a job.

    Raises:
        AheadError: a time is more than a day in the future.
        UsageError: another number is impossible.
    """
    if not rows.num_rows or _is_announced("seq" in rows.column_names, rows, openings):
        return
    _check_times(table, rows, now_ns)
    if "step" in rows.column_names and (step := pc.max(rows["step"]).as_py()) > MAX_STEP:
        raise UsageError(f"step {step} in {table}", hint=f"steps count from 0 to {MAX_STEP}")
    if table == "ranks":
        _check_grids(rows)
        _check_texts(rows)
    if table in ("profile_states", "profile_parts"):
        _check_profiles(table, rows)
    if table == "findings":
        _check_findings(rows)


def _is_announced(numbered: bool, rows: pa.Table, openings: Mapping[int, int]) -> bool:
    """Whether every record comes from a named folder."""
    if not numbered:
        return False
    ranks = np.unique(rows["rank"].to_numpy()).tolist()
    return all(openings.get(rank, NO_FOLDER) != NO_FOLDER for rank in ranks)


def _check_times(table: str, rows: pa.Table, now_ns: int) -> None:
    for name in (name for name in _TIMES if name in rows.column_names):
        span = pc.min_max(rows[name]).as_py()
        if span["min"] < 0:
            raise UsageError(f"{name} is {span['min']} in {table}", hint="send nanoseconds since the epoch")
        if span["max"] > now_ns + MAX_AHEAD_NS:
            days = (span["max"] - now_ns) / MAX_AHEAD_NS
            raise AheadError(
                f"{name} is {days:.1f} days in the future in {table}", hint="correct the clock of the sender"
            )


def _check_grids(rows: pa.Table) -> None:
    grids = rows.select(list(_GRID)).group_by(list(_GRID)).aggregate([])
    sizes = [topology_in(row).world_size for row in grids.to_pylist()]
    world = [rows[name].to_numpy().astype(np.uint64) for name in ("dp_size", "pp_size", "tp_size")]
    rank = rows["rank"].to_numpy()
    if len(np.unique(rank)) < len(rank):
        raise UsageError("a rank is announced twice in one batch", hint="send one row for each rank")
    beyond = rank[rank >= world[0] * world[1] * world[2]]
    if len(beyond):
        raise UsageError(f"rank {int(beyond[0])} is outside its grid of {max(sizes)} ranks", hint="ranks count from 0")


def _check_texts(rows: pa.Table) -> None:
    if any(len(host) > MAX_HOST_LENGTH for host in pc.unique(rows["host"]).to_pylist()):
        raise UsageError("a host name is too long", hint=f"use at most {MAX_HOST_LENGTH} characters")
    if not all(map(_is_texts, pc.unique(rows["meta"]).to_pylist())):
        raise UsageError("meta of a rank cannot be read", hint="send a JSON object of strings")


def _check_profiles(table: str, rows: pa.Table) -> None:
    if not all(map(is_profile_id, pc.unique(rows["profile_id"]).to_pylist())):
        raise UsageError(f"profile_id in {table} is not an id", hint="send 32 hexadecimal digits")
    if table == "profile_parts":
        if (
            pc.max(rows["part"]).as_py() >= MAX_PARTS
            or pc.max(pc.binary_length(rows["content"])).as_py() > MAX_PART_TEXT
        ):
            raise UsageError(
                "a part of a profile is too large", hint=f"send at most {MAX_PARTS} parts of {MAX_PART_TEXT} characters"
            )
        return
    if not {*rows["phase"].to_pylist()} <= {*Phase} - {Phase.REQUESTED}:
        raise UsageError("the phase of a profile is unknown", hint=f"send one of {', '.join(Phase)}")
    try:
        for body in filter(None, rows["body"].to_pylist()):
            ProfileOutcome.parse(body)
    except ValueError as error:
        raise UsageError(
            "the outcome of a profile cannot be read", hint="send a JSON object of ProfileOutcome"
        ) from error


def _check_findings(rows: pa.Table) -> None:
    if not all(map(is_fingerprint, pc.unique(rows["fingerprint"]).to_pylist())):
        raise UsageError("the fingerprint of a finding is not valid", hint="send 16 hexadecimal digits")
    if not {*rows["state"].to_pylist()} <= {*Change}:
        raise UsageError("the change of a finding is unknown", hint=f"send one of {', '.join(Change)}")
    if not np.isfinite(rows["seconds_lost"].to_numpy()).all():
        raise UsageError("the cost of a finding is not a number", hint="send a finite number of seconds")
    for name in (field.name for field in rows.schema if field.type == pa.string()):
        limit = MAX_PLACES if name in ("hosts", "ranks", "device") else MAX_TEXT
        if pc.max(pc.utf8_length(rows[name])).as_py() > limit:
            raise UsageError(f"{name} of a finding is too long", hint=f"send at most {limit} characters")


def _is_texts(meta: str) -> bool:
    try:
        fields = json.loads(meta)
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and all(isinstance(value, str) for value in fields.values())
