"""Hosts that post spans as their agents do, as fast as the collector takes them.

python -m tests.benchmarks.ingest_client URL SECONDS   ->   {"rows", "seconds", "cpu_s", "refused"} as JSON
"""

import json
import sys
import threading
import time

import numpy as np
import pyarrow as pa

from telemetry.agent.loop import BackOff
from telemetry.errors import UnreachableError
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import labelled
from tests.benchmarks.made_spans import SPANS_A_STEP, MadeJob

RUN = "ingest"
NUM_HOSTS = 6
RANKS_A_HOST = 8
STEPS_A_BATCH = 124
"""About 100,000 records per batch, the number that an agent sends at a time."""
ROWS_A_BATCH = STEPS_A_BATCH * SPANS_A_STEP * RANKS_A_HOST


class Host:
    """One agent's stream of batches: rank after rank, and every batch later than the one before it."""

    def __init__(self, first_rank: int, url: str) -> None:
        self._url = url
        self._ranks = made_ranks(first_rank)
        self.rows = 0
        self.refused = 0

    def post_until(self, end_s: float) -> None:
        back_off = BackOff()
        with CollectorClient(self._url) as client:
            number = 0
            while time.monotonic() < end_s:
                batch = labelled(pa.concat_tables([later(rows, number) for rows in self._ranks]), RUN, 0)
                if self._stored(client, batch, back_off):
                    self.rows += batch.num_rows
                    number += 1

    def _stored(self, client: CollectorClient, batch: pa.Table, back_off: BackOff) -> bool:
        try:
            client.post("spans", batch)
        except UnreachableError as error:
            self.refused += 1
            back_off.failed(error)
            time.sleep(back_off.seconds)
            return False
        back_off.succeeded()
        return True


def made_ranks(first_rank: int) -> list[pa.Table]:
    """A batch's rows of each rank of a host."""
    job = MadeJob(num_ranks=RANKS_A_HOST, num_steps=STEPS_A_BATCH, slow_rank=RANKS_A_HOST, seed=first_rank)
    (rows,) = job.blocks(STEPS_A_BATCH)
    of_rank = rows["rank"].to_numpy()
    ranks = []
    for rank in range(RANKS_A_HOST):
        own = rows.filter(pa.array(of_rank == rank)).combine_chunks()
        number = pa.array(np.full(own.num_rows, first_rank + rank, np.uint32))
        ranks.append(own.set_column(own.column_names.index("rank"), "rank", number))
    return ranks


def later(rows: pa.Table, number: int) -> pa.Table:
    """``rows`` moved to the ``number``-th batch after them: later records, steps and times."""
    start_ns = rows["start_ns"].to_numpy()
    lasts_ns = int(start_ns.max() - start_ns.min()) + 1_000_000
    ahead = {"seq": rows.num_rows * number, "step": STEPS_A_BATCH * number, "start_ns": lasts_ns * number}
    for name, amount in ahead.items():
        values = rows[name].to_numpy()
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(values + values.dtype.type(amount)))
    return rows


def main(url: str, seconds: str) -> None:
    hosts = [Host(RANKS_A_HOST * number, url) for number in range(NUM_HOSTS)]
    began = time.monotonic()
    threads = [threading.Thread(target=host.post_until, args=(began + float(seconds),)) for host in hosts]
    cpu_s = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = {
        "rows": sum(host.rows for host in hosts),
        "seconds": time.monotonic() - began,
        "cpu_s": time.process_time() - cpu_s,
        "refused": sum(host.refused for host in hosts),
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
