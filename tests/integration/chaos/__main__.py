"""Random disturbances of real processes: is every record stored once, or reported as lost?

python -m tests.integration.chaos [--seeds 0:200] [--only server|embedded|collectors] [--write]

The seeds alternate between three setups: Debian's server, an embedded store, and two collectors behind one address with
the server.

``--write`` puts the table into docs/accuracy.md. Small disks that can be full need root. Without root, no disk is
filled. The exit status is 1 if an account has a fault.
"""

import argparse
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from statistics import median

from tests.benchmarks.pages import as_table, write_section
from tests.integration.chaos.server import disturbed_server
from tests.integration.chaos.trial import KEPT, Ground, Seen, stand_trial

TITLE = "Chaos"
HEADINGS = (
    *("store", "schedules", "disturbances", "records", "rows stored", "lost, reported with a reason", "without space"),
    *("schedules with a fault", "seconds, median (worst)"),
)
WORDS = {
    "kill": "`kill -9` and restart",
    "pause": "SIGSTOP and SIGCONT",
    "cut": "network cut",
    "halve": "answer cut in half",
    "slow": "slow store (stopped every other 0.1 s)",
    "fill": "full disk",
    "move": "another agent with another collector address",
    "jump": "wall clock set forward or back by up to 40 days, then corrected",
}
NOTES = """\
- Two ranks record, and one agent sends their records. Ranks, agent, collectors and store are real processes. The store
  is Debian's ClickHouse server, or embedded (chdb). Relays between the processes cut the network and the answers.
- A *schedule* is a random list of disturbances. They begin at random times within three seconds, and may overlap.
- Ranks and agent share one wall clock, collectors share another one, and the disturbances change both. The stores use
  the clock of the machine.
- After the disturbances, the trial waits until the agent has sent everything. Then every stored row is compared with
  copies of the rank files: rank, record number, start and duration. A schedule has a fault if a row is missing or
  duplicated, or if a stored row is reported as lost.
- *Lost*: records of old segments that a rank deleted before they were sent, because its rank files had reached their
  limit (4 to 64 segments of 1,024 records in this test), or because the disk was full. The reason is reported.
- *Without space*: records that were dropped because the disk was full and no old segment could be deleted. They have
  no record number."""


def main() -> int:
    """Run the trials. Return the exit status."""
    given = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that every disk is unmounted
    logging.getLogger("clickhouse_driver").setLevel(logging.CRITICAL)  # a missing answer is expected here
    seeds = range(*map(int, given.seeds.split(":")))
    disks = os.geteuid() == 0
    with ExitStack() as cleanup:
        server = None if given.only == "embedded" else cleanup.enter_context(disturbed_server(disks=disks))
        found = {
            "server": Ground(server=server, disks=disks),
            "embedded": Ground(disks=disks),
            "collectors": Ground(server=server, num_collectors=2, disks=disks),
        }
        grounds = [found[given.only]] if given.only else list(found.values())
        seen = [_told(stand_trial(seed, grounds[seed % len(grounds)])) for seed in seeds]
    text = "\n\n".join([_table(seen), _kinds(seen), NOTES])
    print(text)
    if given.write:
        write_section(TITLE, f"python -m tests.integration.chaos --seeds {given.seeds}", text)
    return int(any(one.account.faults for one in seen))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:200", help="first and one past the last, as in 0:200")
    parser.add_argument("--only", choices=("server", "embedded", "collectors"), help="one ground for all seeds")
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy.md")
    return parser.parse_args()


def _told(seen: Seen) -> Seen:
    account = seen.account
    words = "; ".join(account.faults) if account.faults else f"exact, {account.checksum}"
    counts = f"{account.recorded} recorded, {account.stored} stored, {account.lost} lost, {account.unnumbered} no room"
    print(f"{seen.ground}, {seen.schedule}: {words}: {counts}, {seen.seconds:.1f} s", file=sys.stderr, flush=True)
    if account.faults:
        print(f"what is left of it is in {KEPT}", file=sys.stderr, flush=True)
    return seen


def _table(seen: Sequence[Seen]) -> str:
    return as_table(HEADINGS, list(_rows(seen)))


def _rows(seen: Sequence[Seen]) -> Iterator[tuple[str, ...]]:
    for ground in sorted({one.ground for one in seen}):
        own = [one for one in seen if one.ground == ground]
        took = [one.seconds for one in own]
        yield (
            ground,
            str(len(own)),
            str(sum(len(one.schedule.disturbances) for one in own)),
            f"{sum(one.account.recorded for one in own):,}",
            f"{sum(one.account.stored for one in own):,}",
            f"{sum(one.account.lost for one in own):,} in {sum(one.account.lost > 0 for one in own)} schedules",
            f"{sum(one.account.unnumbered for one in own):,}",
            str(sum(bool(one.account.faults) for one in own)),
            f"{median(took):.1f} ({max(took):.1f})",
        )


def _kinds(seen: Sequence[Seen]) -> str:
    counts = Counter((one.kind, one.part) for trial in seen for one in trial.schedule.disturbances)
    rows = [
        (WORDS[kind], ", ".join(f"{part} {counts[of, part]}" for of, part in sorted(counts) if of == kind))
        for kind in WORDS
        if any(of == kind for of, _ in counts)
    ]
    return as_table(("disturbance", "process, number of times"), rows)


if __name__ == "__main__":
    sys.exit(main())
