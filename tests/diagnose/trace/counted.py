"""The expected content of a trace, counted by the store."""

from dataclasses import dataclass

from telemetry.stages import Stage, Stream
from telemetry.stores.interface import Store
from telemetry.topology import Topology

PAIRS = ((Stage.FORWARD_SEND, Stage.FORWARD_RECV), (Stage.BACKWARD_SEND, Stage.BACKWARD_RECV))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Steps of attempt 0 of a run."""

    run: str
    first_step: int
    last_step: int

    @property
    def where(self) -> str:
        return f"run_id = '{self.run}' AND attempt = 0 AND step >= {self.first_step} AND step <= {self.last_step}"


def num_spans(store: Store, window: Window) -> int:
    return _number(store, f"SELECT count() AS n FROM spans WHERE {window.where}")


def num_transfers(store: Store, window: Window) -> int:
    """Sends whose pair has as many receives in that step."""
    total = 0
    for send, receive in PAIRS:
        sent = _by_pair(window, send, sender="rank", receiver="peer")
        received = _by_pair(window, receive, sender="peer", receiver="rank")
        total += _number(
            store,
            f"SELECT sum(one.num) AS n FROM ({sent}) AS one INNER JOIN ({received}) AS other "
            "USING (step, a, b) WHERE one.num = other.num",
        )
    return total


def _by_pair(window: Window, stage: Stage, *, sender: str, receiver: str) -> str:
    return (
        f"SELECT step, toInt64({sender}) AS a, toInt64({receiver}) AS b, count() AS num FROM spans "
        f"WHERE {window.where} AND stage = {int(stage)} GROUP BY step, a, b"
    )


def num_collective_arrows(store: Store, window: Window, topology: Topology) -> int:
    """For each collective of a complete group: the number of its members minus one."""
    width = topology.pp * topology.tp
    along = {
        f"rank % {width}": (topology.dp, [9, 10, 11, 23]),
        f"intDiv(rank, {topology.tp})": (topology.tp, [int(one) for one in Stage if one.stream is Stream.TP]),
        f"intDiv(rank, {width}) * {topology.tp} + rank % {topology.tp}": (min(2, topology.pp), [12]),
    }
    total = 0
    for group, (size, stages) in along.items():
        ranks = (
            f"SELECT step, stage, {group} AS one, rank, count() AS num FROM spans "
            f"WHERE {window.where} AND stage IN ({', '.join(map(str, stages))}) GROUP BY step, stage, one, rank"
        )
        groups = (
            "SELECT count() AS members, min(num) AS least, max(num) AS most, sum(num) AS total "
            f"FROM ({ranks}) GROUP BY step, stage, one"
        )
        total += _number(
            store,
            f"SELECT sum(intDiv(total, {size}) * {size - 1}) AS n FROM ({groups}) "
            f"WHERE members = {size} AND least = most",
        )
    return total


def _number(store: Store, sql: str) -> int:
    rows = store.query(sql)["n"].to_pylist()
    return int(rows[0] or 0) if rows else 0
