"""Checks and stores orders of profiles, and hands them to the agents in the answers to their heartbeats.

    command, dashboard  --POST /v1/profiles, full token-->  profile_requests
    agent  --heartbeats of ranks 0-7-->  answer: {"rows", "duplicates", "profiles": [request of rank 3]}
    agent  --profile_states: taken-->    the request is not handed out again

Agents open no port, and send no additional requests. The open requests are read from the store at most once a second,
so a collector also hands out requests that another collector has accepted.
"""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from telemetry.errors import UnreachableError, UsageError
from telemetry.printable import log, printable
from telemetry.profiles import SUPPORTED, TAKE_S, ProfileRequest
from telemetry.records import parse_meta
from telemetry.run_names import Attempt
from telemetry.stores.interface import Reader, Store
from telemetry.stores.queries import Heartbeats, OpenProfileRequests, Ranks
from telemetry.tables import PROFILE_REQUESTS, owned
from telemetry.wire.codec import Batch
from telemetry.wire.profile_order import ProfileOrder

SECOND_NS = 10**9
REFRESH_NS = SECOND_NS
LIVE_NS = 60 * SECOND_NS
"""A rank lives if its newest heartbeat is not older."""
Clock = Callable[[], int]


class RefusedOrderError(UsageError):
    """The ranks cannot be profiled. ``status``: status of the HTTP answer."""

    def __init__(self, status: int, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class ProfileOrders:
    """The orders of a collector. May be used by any thread.

    Args:
        is_open: whether orders are accepted: only on a server with a full token.
    """

    def __init__(self, store: Store, reader: Reader, *, is_open: bool, clock_ns: Clock = time.time_ns) -> None:
        self._store, self._reader, self._clock_ns = store, reader, clock_ns
        self.is_open = is_open
        self._refreshing = threading.Lock()
        self._refreshed_ns = 0
        self._open: dict[Attempt, dict[int, list[ProfileRequest]]] = {}

    def accept(self, order: ProfileOrder) -> str:
        """Store an order. Returns the id of the profile.

        Raises:
            RefusedOrderError: orders are closed, or one of the ranks does not exist, does not live, or is too old.
            UnreachableError: the store does not answer.
        """
        if not self.is_open:
            raise RefusedOrderError(
                403,
                "this collector accepts no requests for profiles, because it has no RANKSCOPE_TOKEN",
                hint="restart it with RANKSCOPE_TOKEN set, or use `rankscope profile --spool DIR` on the ranks' host",
            )
        ranks = tuple(dict.fromkeys(order.ranks))
        self._check(order, ranks)
        profile_id = secrets.token_hex(16)
        common = {"profile_id": profile_id, "at_ns": self._clock_ns(), "steps": order.steps, "seconds": order.seconds}
        rows = [{**common, "rank": rank, "finding": order.finding} for rank in ranks]
        table = pa.Table.from_pylist(rows, schema=PROFILE_REQUESTS)
        self._store.insert("profile_requests", owned(table, order.run_id, order.attempt))
        numbers = ", ".join(map(str, ranks))
        log(f"rankscope collect: profile {profile_id} of ranks {numbers} of run {printable(order.run_id)} requested")
        self._refreshed_ns = 0
        return profile_id

    def open_for(self, batch: Batch) -> list[dict[str, Any]]:
        """The open requests to the ranks of a batch of heartbeats, as JSON. Empty after an error of the store."""
        try:
            self._refresh()
        except (UnreachableError, UsageError):
            return []
        of_run = self._open.get((batch.run_id, batch.attempt))
        if not of_run:
            return []
        ranks = dict.fromkeys(batch.rows["rank"].to_pylist())
        return [asdict(request) for rank in ranks for request in of_run.get(rank, ())]

    def _refresh(self) -> None:
        """Read the open requests, if this is due and no other thread does so."""
        now_ns = self._clock_ns()
        if 0 <= now_ns - self._refreshed_ns < REFRESH_NS or not self._refreshing.acquire(blocking=False):
            return
        try:
            self._refreshed_ns = now_ns
            found: dict[Attempt, dict[int, list[ProfileRequest]]] = {}
            for row in self._reader.read(OpenProfileRequests(since_ns=max(0, now_ns - TAKE_S * SECOND_NS))).to_pylist():
                names = ("profile_id", "rank", "steps", "seconds")
                request = ProfileRequest(**{name: row[name] for name in names})
                found.setdefault((row["run_id"], row["attempt"]), {}).setdefault(request.rank, []).append(request)
            self._open = found
        finally:
            self._refreshing.release()

    def _check(self, order: ProfileOrder, ranks: tuple[int, ...]) -> None:
        rows = self._reader.read(Ranks(run_id=order.run_id, attempt=order.attempt)).to_pylist()
        known = {row["rank"]: row for row in rows}
        if not known:
            wanted = f"{printable(order.run_id)!r} with attempt {order.attempt}"
            raise RefusedOrderError(404, f"no run {wanted} is stored", hint="`rankscope runs` lists all runs")
        living = self._living(order)
        for rank in ranks:
            if rank not in known:
                hint = f"its ranks are {min(known)} to {max(known)}"
                raise RefusedOrderError(404, f"run {order.run_id} has no rank {rank}", hint=hint)
        for rank in ranks:
            if rank not in living:
                raise RefusedOrderError(
                    409,
                    f"rank {rank} of run {order.run_id} is not live: no heartbeat within {LIVE_NS // SECOND_NS} s",
                    hint="check that the rank runs and that its agent reaches the collector",
                )
            if SUPPORTED not in parse_meta(known[rank]["meta"]):
                raise RefusedOrderError(
                    409,
                    f"rank {rank} runs a version of rankscope without profiles",
                    hint="start the training again with this version of rankscope",
                )

    def _living(self, order: ProfileOrder) -> set[int]:
        now_ns = self._clock_ns()
        beats = self._reader.read(Heartbeats(run_id=order.run_id, attempt=order.attempt)).to_pylist()
        return {
            beat["rank"] for beat in beats if beat["alive"] and not beat["ended"] and now_ns - beat["at_ns"] < LIVE_NS
        }
