"""Profiles of a run, as a collector and its agents store them."""

import base64
import hashlib
import zlib

import pyarrow as pa

from telemetry.profiles import Phase, ProfileOutcome
from telemetry.stores.interface import Store
from telemetry.tables import PROFILE_REQUESTS
from tests.telemetry.made_rows import insert, made

FIRST, SECOND = "1" * 32, "2" * 32
TRACE = b'{"baseTimeNanoseconds": 0, "traceEvents": []}'


def store_profiles(store: Store, run_id: str, *, at_ns: int, trace: bytes = TRACE) -> None:
    """A stored profile of rank 5 and of its peer 1 for a finding, in two parts each, and one of rank 3 that failed."""
    for profile_id, ranks, finding in ((FIRST, (1, 5), "compute-straggler"), (SECOND, (3,), "")):
        asked = {"profile_id": profile_id, "at_ns": at_ns, "steps": 5, "seconds": 60, "finding": finding}
        requests = pa.Table.from_pylist([{**asked, "rank": rank} for rank in ranks], schema=PROFILE_REQUESTS)
        insert(store, "profile_requests", requests, run_id=run_id)
    file = zlib.compress(trace, wbits=31)
    parts = [file[:20], file[20:]]
    for rank in (1, 5):
        rows = [
            {"rank": rank, "profile_id": FIRST, "part": number, "content": base64.b64encode(part).decode()}
            for number, part in enumerate(parts)
        ]
        insert(store, "profile_parts", made("profile_parts", rows), run_id=run_id)
        outcome = ProfileOutcome(
            profile_id=FIRST,
            phase=Phase.STORED,
            first_step=20,
            last_step=24,
            parts=len(parts),
            sha256=hashlib.sha256(file).hexdigest(),
        )
        store_state(store, run_id, rank, outcome, at_ns=at_ns)
    reason = "the training runs its own profiler"
    store_state(store, run_id, 3, ProfileOutcome(profile_id=SECOND, phase=Phase.FAILED, reason=reason), at_ns=at_ns)


def store_state(store: Store, run_id: str, rank: int, outcome: ProfileOutcome, *, at_ns: int) -> None:
    row = {"rank": rank, "profile_id": outcome.profile_id, "at_ns": at_ns, "phase": outcome.phase}
    insert(store, "profile_states", made("profile_states", [{**row, "body": outcome.to_json()}]), run_id=run_id)
