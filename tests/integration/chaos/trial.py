"""One schedule in one world, from its start to its account."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.chaos.account import Account
from tests.integration.chaos.schedule import SECONDS, Schedule, Scope, make_schedule
from tests.integration.chaos.server import DisturbedServer
from tests.integration.chaos.world import CLOCKS, NUM_RANKS, World, standing_world

KEPT = Path(tempfile.gettempdir()) / "rankscope-chaos"
"""The folder for files of worlds whose account has faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The setup of a trial."""

    server: DisturbedServer | None = None
    """None: an embedded store."""
    num_collectors: int = 1
    disks: bool = False

    @property
    def scope(self) -> Scope:
        """The parts that can be disturbed in this setup."""
        collectors = ["collector", *(f"collector-{number + 2}" for number in range(self.num_collectors - 1))]
        parts = (*collectors, "agent", *(f"rank-{number}" for number in range(NUM_RANKS)))
        return Scope(
            processes=(*parts, "server") if self.server else parts,
            links=("front", "side", "back") if self.server else ("front", "side"),
            disks=("spool", "store") if self.disks else (),
            clocks=CLOCKS,
        )

    def __str__(self) -> str:
        store = "server" if self.server else "embedded"
        return store if self.num_collectors == 1 else f"{store}, {self.num_collectors} collectors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A trial and its result."""

    schedule: Schedule
    ground: str
    account: Account
    seconds: float


def stand_trial(seed: int, ground: Ground, *, seconds: float = SECONDS) -> Seen:
    """Start all parts, disturb them, let them finish and compare the records."""
    schedule = make_schedule(seed, ground.scope, seconds=seconds)
    began = time.monotonic()
    account = Account()
    with _folder(account) as folder:
        run_id = f"chaos_{seed}_{ground.num_collectors}"
        try:
            with standing_world(
                folder,
                schedule.max_segments,
                run_id=run_id,
                server=ground.server,
                num_collectors=ground.num_collectors,
                disks=ground.disks,
            ) as world:
                _play(world, schedule, account)
        except Exception as error:
            account.faults.append(f"{type(error).__name__}: {error}")
    return Seen(schedule=schedule, ground=str(ground), account=account, seconds=time.monotonic() - began)


def _play(world: World, schedule: Schedule, account: Account) -> None:
    world.disturb(schedule)
    world.quieten()
    world.account(account)


@contextmanager
def _folder(account: Account) -> Iterator[Path]:
    """A folder in memory. If the account has faults, it is copied to ``KEPT`` for debugging."""
    folder = Path(tempfile.mkdtemp(prefix="rankscope-chaos-", dir="/dev/shm"))
    try:
        yield folder
    finally:
        if account.faults:
            shutil.copytree(folder, KEPT / folder.name, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
