"""A world of real processes that a schedule disturbs, until it is quiet again.

    rank-0 rank-1 --files--> agent --front, side--> collector (collector-2) --back--> server, or a folder of chdb
      '-- spool disk                   (relays)                            (relay)       '-- store disk

A part that ended is started again, as by a service manager. Ranks are started only when the schedule says so.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile

from telemetry.errors import UnreadableError
from telemetry.record.reader import RankReader
from tests.deadline import until
from tests.integration.chaos import roles
from tests.integration.chaos.account import Account, hold_counters, hold_rows
from tests.integration.chaos.forked import Part
from tests.integration.chaos.relay import Relay
from tests.integration.chaos.schedule import Disturbance, Schedule
from tests.integration.chaos.server import DisturbedServer
from tests.integration.chaos.small_disk import SmallDisk, small_disk
from tests.integration.chaos.wall_clock import WallClock
from tests.integration.processes import free_port

NUM_RANKS = 2
CLOCKS = ("host", "collectors")
"""The clock of ranks and agent, and the clock of the collectors."""
SPOOL_MIB = 6
STORE_MIB = 64
LOOK_S = 0.02
DUTY_S = 0.1
QUIET_S = 180.0
AFTERMATH_S = 0.5
"""Time of undisturbed recording before the end."""
Undo = Callable[[], object]
_no_undo: Undo = object


@dataclass(slots=True, kw_only=True)
class World:
    """The running parts. See :func:`standing_world`."""

    folder: Path
    run_id: str
    store: str
    """The address of the store for the collectors."""
    parts: dict[str, Part]
    links: dict[str, Relay]
    clocks: dict[str, WallClock] = field(init=False)
    disks: dict[str, SmallDisk] = field(default_factory=dict)
    server: DisturbedServer | None = None
    down: set[str] = field(default_factory=set)
    """Parts that must not run now."""

    def __post_init__(self) -> None:
        self.clocks = {name: WallClock(self.folder / f"{name}.clock") for name in CLOCKS}

    @property
    def ranks(self) -> list[Part]:
        return [part for name, part in self.parts.items() if name.startswith("rank")]

    def kept(self, part: Part) -> Path:
        """Folder of the copies of a rank's segments."""
        return self.folder / "kept" / part.name

    def spool_of(self, part: Part) -> Path:
        return self.folder / "spool" / self.run_id / "0" / f"rank-{int(part.name[5:]):05d}"

    def flows(self) -> bool:
        """Whether records of every rank are acknowledged."""
        return all(RankReader(self.spool_of(part)).acked() for part in self.ranks)

    def disturb(self, schedule: Schedule) -> None:
        """Run the schedule."""
        began = time.monotonic()
        ahead = list(schedule.disturbances)
        undone: list[tuple[float, Undo]] = []
        pause = threading.Event()
        while ahead or undone:
            now = time.monotonic() - began
            while ahead and ahead[0].at_s <= now:
                one = ahead.pop(0)
                undone.append((now + one.seconds, self._begin(one)))
            for due in [entry for entry in undone if entry[0] <= now]:
                undone.remove(due)
                due[1]()
            self.tend()
            pause.wait(LOOK_S)

    def tend(self) -> None:
        """Start every part that has ended and should run."""
        if self.server is not None and "server" not in self.down:
            self.server.launch()
        for name, part in self.parts.items():
            if not part.running and name not in self.down and part not in self.ranks:
                part.start()

    def quieten(self) -> None:
        """Let every rank record for a moment and end normally. Wait until everything is shipped."""
        pause = threading.Event()
        for part in self.ranks:
            if not part.running:
                part.start()
        until(lambda: all(self._is_recording(part) for part in self.ranks), seconds=QUIET_S, what="ranks that record")
        pause.wait(AFTERMATH_S)
        for part in self.ranks:
            part.tell(signal.SIGTERM)
        until(lambda: not any(part.running for part in self.ranks), seconds=QUIET_S, what="ranks that end")
        for part in self.ranks:
            assert part.status == 0, (part.name, part.status, part.said())
            self._copy(part)
        until(self._is_shipped, seconds=QUIET_S, what=f"all shipped ({self.parts['agent'].said()[-2000:]})")

    def account(self, account: Account) -> None:
        """End the collectors after ``quieten``, and compare the store with the recorded records."""
        for part in self.parts.values():
            part.tell(signal.SIGTERM)
        until(lambda: not any(part.running for part in self.parts.values()), seconds=QUIET_S, what="the end")
        dumped = self.folder / "dumped"
        dumped.mkdir()
        clerk = Part("dump", roles.dump, self.folder / "dump.log")
        clerk.arguments = (self.store, self.run_id, dumped)
        clerk.start()
        until(lambda: not clerk.running, seconds=QUIET_S, what="the dump")
        assert clerk.status == 0, clerk.said()
        hold_rows(account, [self.kept(part) for part in self.ranks], dumped)
        for part in self.ranks:
            self._hold_counters(account, part)

    def _hold_counters(self, account: Account, part: Part) -> None:
        dropped = RankReader(self.spool_of(part)).live().dropped
        called = int((self.kept(part) / "calls").read_text()) if part.num_starts == 1 else None
        hold_counters(account, part.name, self.kept(part), dropped=dropped, called=called)

    def _begin(self, one: Disturbance) -> Undo:
        if one.kind in ("cut", "halve"):
            relay, cuts = self.links[one.part], one.kind == "cut"
            (relay.cut if cuts else relay.halve)()
            return relay.mend if cuts else _no_undo
        if one.kind == "fill":
            self.disks[one.part].fill()
            return self.disks[one.part].free
        if one.kind == "jump":
            self.clocks[one.part].set_off(one.jump_s)
            return lambda: self.clocks[one.part].set_off(0)
        if one.kind == "move":
            return self._move_agent()
        if one.part == "server":
            return self._disturb_server(one)
        return self._disturb_process(one, self.parts[one.part])

    def _move_agent(self) -> Undo:
        """Replace the agent by one that sends to the other address."""
        agent = self.parts["agent"]
        agent.kill()
        clock, spool, port = agent.arguments
        front, side = self.links["front"].port, self.links["side"].port
        agent.arguments = (clock, spool, side if port == front else front)
        return _no_undo

    def _disturb_process(self, one: Disturbance, part: Part) -> Undo:
        if one.kind != "kill":
            return _paused(part.tell, one)
        part.kill()
        if part in self.ranks:
            self._copy(part)
        self.down.add(part.name)
        return lambda: self._start_again(part)

    def _start_again(self, part: Part) -> None:
        self.down.discard(part.name)
        if not part.running:
            part.start()

    def _disturb_server(self, one: Disturbance) -> Undo:
        server = self.server
        assert server is not None
        if one.kind != "kill":
            return _paused(server.tell, one)
        server.kill()
        self.down.add("server")
        return lambda: self.down.discard("server")

    def _copy(self, part: Part) -> None:
        """Copy the segments that a rank left. A segment that disappears meanwhile was sealed and copied before."""
        for path in self.spool_of(part).glob("*.rec"):
            with suppress(FileNotFoundError):
                copyfile(path, self.kept(part) / path.name)

    def _is_recording(self, part: Part) -> bool:
        with suppress(UnreadableError):
            state = RankReader(self.spool_of(part)).live()
            return state.pid == part.pid and not state.ended and state.step > 0
        return False

    def _is_shipped(self) -> bool:
        """Whether the agent has ended normally after every rank, and every record is acknowledged."""
        agent = self.parts["agent"]
        if not agent.running and agent.status == 0 and all(self._is_acked(part) for part in self.ranks):
            return True
        self.tend()
        return False

    def _is_acked(self, part: Part) -> bool:
        reader = RankReader(self.spool_of(part))
        return reader.end_seq(reader.acked()) == reader.acked() >= reader.live().recorded


def _paused(tell: Callable[[signal.Signals], None], one: Disturbance) -> Undo:
    """Stop a process until the disturbance is undone. ``slow``: a thread stops and continues it in turn."""
    tell(signal.SIGSTOP)
    if one.kind == "pause":
        return lambda: tell(signal.SIGCONT)
    ended = threading.Event()

    def alternate() -> None:
        while not ended.wait(DUTY_S):
            tell(signal.SIGCONT)
            ended.wait(DUTY_S)
            tell(signal.SIGSTOP)
        tell(signal.SIGCONT)

    thread = threading.Thread(target=alternate, name="slow", daemon=True)
    thread.start()

    def undo() -> None:
        ended.set()
        thread.join()

    return undo


@contextmanager
def standing_world(
    folder: Path,
    max_segments: int,
    *,
    run_id: str,
    server: DisturbedServer | None = None,
    num_collectors: int = 1,
    disks: bool = False,
) -> Iterator[World]:
    """A world with all parts started. At the end, running parts are killed and every disk is unmounted.

    Args:
        folder: an empty folder on a fast disk.
        max_segments: maximum number of segments of a rank file.
        server: the store. None: an embedded store.
        disks: put spool and embedded store on small disks, which needs root.
    """
    with ExitStack() as cleanup:
        found: dict[str, SmallDisk] = {}
        for name, size_mib in (("spool", SPOOL_MIB), ("store", STORE_MIB)):
            (folder / name).mkdir()
            if disks and (name == "spool" or server is None):
                found[name] = cleanup.enter_context(small_disk(folder / name, size_mib=size_mib))
        if server is not None and server.disk is not None:
            found["store"] = server.disk
            cleanup.callback(server.disk.free)
        ports = [free_port() for _ in range(num_collectors)]
        links = {"front": Relay(*ports), "side": Relay(*ports)}
        store = f"embedded:{folder / 'store' / 'chdb'}"
        through = store
        if server is not None:
            links["back"] = Relay(server.port)
            store, through = server.url(run_id), server.url_through(links["back"].port, run_id)
        for relay in links.values():
            cleanup.callback(relay.close)
        world = World(folder=folder, run_id=run_id, store=store, parts={}, links=links, disks=found, server=server)
        _people(world, through, ports, max_segments)
        for part in world.parts.values():
            cleanup.callback(part.kill)
        for part in world.parts.values():
            part.start()
        until(world.flows, seconds=QUIET_S, what="a first record of each rank in the store")
        yield world


def _people(world: World, store: str, ports: list[int], max_segments: int) -> None:
    """Create the parts, collectors first."""
    host, collectors = (world.clocks[name].path for name in CLOCKS)

    def part(name: str, role: Callable[..., None], *arguments: object) -> None:
        made = Part(name, role, world.folder / f"{name}.log")
        made.arguments = arguments
        world.parts[name] = made

    for number, port in enumerate(ports):
        part("collector" if not number else f"collector-{number + 1}", roles.collector, collectors, store, port)
    part("agent", roles.agent, host, world.folder / "spool", world.links["front"].port)
    for number in range(NUM_RANKS):
        name = f"rank-{number}"
        kept = world.folder / "kept" / name
        part(name, roles.rank, host, world.run_id, number, NUM_RANKS, world.folder / "spool", kept, max_segments)
        kept.mkdir(parents=True)
