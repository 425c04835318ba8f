"""Sends the rows of ranks to the collector, and acknowledges records once all their rows are stored.

announce       row of `ranks`; a rank whose clock is ahead is announced again in the next round
ship_records   marks -> spans -> samples -> acknowledge; a refused table leaves the records in the spool
"""

import time

import pyarrow as pa

from telemetry.agent.host import FollowedRank, Host, Owner
from telemetry.agent.host_reports import Poster
from telemetry.agent.tail import Chunk, rank_rows
from telemetry.errors import AheadError, JumpError, RefusedRowsError
from telemetry.printable import log
from telemetry.profiles import ProfileRequest
from telemetry.wire.codec import labelled

MAX_RECORDS = 100_000
"""Limit for all ranks in one round. Large inserts are cheap."""
MAX_BATCHES = 20
"""Batches of records in one round. Between rounds, heartbeats of living ranks are sent."""
FEW_RECORDS = 5_000
"""A batch with fewer records is the last one of a round, so that a slow store does not get many small inserts."""
TABLES_IN_ORDER = ("marks", "spans", "samples")
"""Marks first: a mark of lost records explains why the numbers of the other rows jump."""


class Shipper:
    """Ships the ranks of one host. ``ahead``: runs with a rank that is not announced because of a wrong clock."""

    def __init__(self, host: Host, poster: Poster) -> None:
        self._host = host
        self._poster = poster
        self.ahead: dict[Owner, AheadError] = {}
        self.profiles: list[tuple[Owner, ProfileRequest]] = []
        """Requests from answers to heartbeats that the agent's loop has not taken yet."""
        self._left_out: set[tuple[Owner, str]] = set()
        """Runs and tables with rows that were left out because their times are ahead of the collector's clock."""

    def announce(self) -> None:
        """Announce new ranks to the collector."""
        known, self.ahead = self.ahead, {}
        unannounced: dict[Owner, list[FollowedRank]] = {}
        for rank in self._host.ranks.values():
            if not rank.announced and rank.owner not in self._host.refused_runs:
                unannounced.setdefault(rank.owner, []).append(rank)
        for owner, ranks in unannounced.items():
            for rank in ranks:
                rank.tail.correct_clock(time.time_ns())
            try:
                stored = self.post("ranks", rank_rows([rank.tail.identity for rank in ranks]), owner)
            except AheadError as error:
                self.ahead[owner] = error
                if owner not in known:
                    log(f"rankscope agent: {error.message}. The agent retries until the clock is corrected")
                continue
            for rank in ranks:
                rank.announced = stored

    def forget_announcements(self) -> None:
        """Announce every rank again: another collector, or another store, may answer next time."""
        for rank in self._host.ranks.values():
            rank.announced = False

    def ship_records(self, *, dry: bool) -> bool:
        """Ship batches of records. True if no records are left. False after ``MAX_BATCHES`` batches and, unless
        ``dry``, after a batch of fewer than ``FEW_RECORDS``."""
        for _ in range(MAX_BATCHES):
            chunks = list(self._host.read(MAX_RECORDS))
            if not chunks:
                return True
            for owner in dict.fromkeys(rank.owner for rank, _ in chunks):
                own = [(rank, chunk) for rank, chunk in chunks if rank.owner == owner]
                if all(self._ship_table(table, own, owner) for table in TABLES_IN_ORDER):
                    for rank, chunk in own:
                        rank.tail.shipped(chunk)
            if not dry and sum(chunk.num_records for _, chunk in chunks) < FEW_RECORDS:
                return False
        return False

    def _ship_table(self, table: str, chunks: list[tuple[FollowedRank, Chunk]], owner: Owner) -> bool:
        """Post the rows of ``table``. Returns whether they are stored. If not, the run is refused, or its missing
        records are reported with the next batch."""
        parts = [chunk.tables[table] for _, chunk in chunks if table in chunk.tables]
        if not parts:
            return True
        try:
            return self.post(table, pa.concat_tables(parts), owner)
        except JumpError as error:
            tails = {rank.tail.identity.rank: rank.tail for rank, _ in chunks}
            if not any([tails[rank].report_hole(stored) for rank, stored in error.stored.items() if rank in tails]):
                self._host.refuse(owner, error)
            return False

    def post(self, table: str, rows: pa.Table, owner: Owner) -> bool:
        """Post ``rows``. Returns whether they are stored. If not, the run or the time stamps were refused.

        Raises:
            JumpError: the record numbers jump too far.
            AheadError: a rank began in the future of the collector's clock. For other tables, this returns False.
        """
        try:
            ack = self._poster.post(table, labelled(rows, *owner, self._host.openings(owner)))
            self.profiles += [(owner, request) for request in ack.profiles]
        except JumpError:
            raise
        except AheadError as error:
            if table == "ranks":
                raise
            if (owner, table) not in self._left_out:
                self._left_out.add((owner, table))
                log(f"rankscope agent: {error.message}. Such rows are left out")
            return False
        except RefusedRowsError as error:
            self._host.refuse(owner, error)
            return False
        return True
