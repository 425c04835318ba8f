"""A root agent serves hostile users. Whatever they plant, name or swap, it uses no file of another user."""

import json
import os
import shutil
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import psutil
import pytest

import telemetry
from telemetry.agent.host import SURE_AFTER, Host, sweep
from telemetry.agent.samplers.interface import Event
from telemetry.agent.tail import RankTail
from telemetry.agent.watch import EvidenceWatch
from telemetry.errors import UnsafeFolderError
from telemetry.evidence import journal
from telemetry.evidence.collect import collect_evidence
from telemetry.evidence.evidence import Evidence, discard_other_steps, keep, kept
from telemetry.evidence.flight_recorder import read_flight_files
from telemetry.evidence.logs import JobLogs
from telemetry.evidence.stacks import take_stack
from telemetry.evidence.worker_client import ask_handler
from telemetry.files import access
from telemetry.files.access import rights_of
from telemetry.files.private_files import make_folder, open_folder
from telemetry.process.child_process import BORN, birth_of, tie_to_parent
from telemetry.record import layout
from telemetry.record.layout import RANK_FOLDER_DEPTH
from telemetry.record.rank_identity import DUMP_PATHS
from telemetry.record.reader import RankReader
from telemetry.record.worker_server import META_KEY
from telemetry.records import RankIdentity
from telemetry.stores.queries import Evidence as StoredEvidence
from telemetry.stores.queries import Ranks
from telemetry.topology import Topology
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.integration.local_users import HONEST, HOSTILE, SECRET, Machine, as_user, running_as, shared_machine
from tests.integration.mounted import FUSE, leave_mount_namespace, mounted
from tests.integration.processes import Part, Road
from tests.parts import require_root

SWAPS = 10_000
EVENT = Event(at_ns=1, device="eth0", name="link-down", text="")
MINE = [Evidence(rank=0, at_ns=1, kind=kind, body="mine") for kind in ("state", "log")]


@pytest.fixture
def machine() -> Iterator[Machine]:
    require_root("an agent that serves several users")
    with shared_machine() as machine:
        yield machine


def record(spool: Path, run: str) -> None:
    """A rank that records three steps and ends normally."""
    session = telemetry.start(run, topology=Topology(), rank=0, attempt=0, spool=spool, agent=False)
    assert session.recording
    for number in range(3):
        with telemetry.step(number), telemetry.span("forward-compute"):
            pass
    telemetry.stop()


def print_and_wait(spool: Path, run: str, log: Path) -> None:
    """A rank that prints into a file of its own and then makes no progress, until the test ends it."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    assert telemetry.start(run, topology=Topology(), rank=0, attempt=0, spool=spool, agent=False).recording
    os.write(1, b"CUDA error: mine\n")
    threading.Event().wait()


def record_each(spool: Path, runs: tuple[str, ...]) -> None:
    for run in runs:
        record(spool, run)


def rank_folder(machine: Machine, run: str = "bad") -> Path:
    return machine.spool / run / "0" / "rank-00000"


def serve(machine: Machine, *runs: str) -> list[str]:
    """Do everything that an agent does with the folders that it finds. Return every text that it reads.

    ``runs``: the runs whose folders it also writes to. The default is "bad".
    """
    host, watch, texts = Host(machine.spool), EvidenceWatch(machine.spool), []
    try:
        for _ in range(SURE_AFTER):
            host.find_ranks()
            for rank in host.ranks.values():
                rank.announced = True
            for rank, chunk in host.read(1000):
                texts += [str(table.to_pylist()) for table in chunk.tables.values()]
                rank.tail.shipped(chunk)
            texts.append(str(host.beats()))
            watch.check()
    finally:
        watch.close()
    texts += [one.body for _, evidence in watch.queue.batches() for one in evidence]
    for run in runs or ("bad",):
        texts += write_and_read(rank_folder(machine, run))
    return texts + [one.body for one in collect_evidence(machine.spool)]


def write_and_read(folder: Path) -> list[str]:
    """Write what an agent writes into a rank's folder. Return what it reads back."""
    with suppress(OSError):
        keep(folder, MINE)
    texts = [one.body for one in kept(folder, 0)]
    discard_other_steps(folder, 0, 77)
    with suppress(OSError):
        journal.append(folder.parent, "host", [EVENT])
    return [*texts, str(list(journal.read(folder.parent)))]


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda secret, place: place.symlink_to(secret),
    "link to a folder": lambda secret, place: place.symlink_to(secret.parent),
    "hard link": lambda secret, place: os.link(secret, place),
    "pipe": lambda _, place: os.mkfifo(place, 0o666),
    "device": lambda _, place: os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5)),
}
WITHOUT_SECRET = ("pipe", "device")
"""These show no file."""
IN_EVERY_RUN = ("link", "hard link", "device")
OTHERS = tuple(what for what in PLANTS if what not in IN_EVERY_RUN)
PLACES = (
    "meta.json", "state", "shipping", "000000.rec", "000007.rec", "evidence", "evidence/state", "evidence/log",
    f"evidence/state.{os.getpid()}.new", "../hosts", "../hosts/host.jsonl", "../rank-00000", "../../0", "../..",
)  # fmt: skip


@pytest.mark.parametrize("what", [*IN_EVERY_RUN, *(pytest.param(each, marks=pytest.mark.long) for each in OTHERS)])
def test_agent_follows_nothing_planted_in_a_rank_folder_to_a_file_of_another_user(machine: Machine, what: str) -> None:
    """Each place in each of two runs: one run for each secret."""
    secrets = machine.secrets[:1] if what in WITHOUT_SECRET else machine.secrets
    planted = {f"bad-{number}": where for number, where in enumerate(product(PLACES, secrets))}
    as_user(HONEST, record, machine.spool, "good")
    as_user(HOSTILE, record_each, machine.spool, tuple(planted))
    before = machine.snapshot()
    for run, (place, secret) in planted.items():
        plant(what, secret, Path(os.path.normpath(rank_folder(machine, run) / place)))
    texts = serve(machine, *planted)
    assert not [text for text in texts if "SECRET" in text]
    assert machine.snapshot() == before
    for run in planted:
        clear(machine.spool / run)
    sweep(machine.spool, keep_days=0)
    assert not (machine.spool / "good").exists(), "all of the honest rank is stored, so its folder is swept"


def plant(what: str, secret: Path, place: Path) -> None:
    """Replace ``place``, as the owner of its folder could."""
    if not place.parent.exists():
        place.parent.mkdir()
        os.chown(place.parent, HOSTILE, HOSTILE)
    clear(place)
    PLANTS[what](secret, place)
    if what != "hard link":
        os.lchown(place, HOSTILE, HOSTILE)


def clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)


def test_log_replaced_by_a_link_shows_no_line_of_another_file(machine: Machine) -> None:
    log = machine.hostile_folder() / "log"
    with running_as(HOSTILE, print_and_wait, machine.spool, "bad", log) as rank:
        until(lambda: "mine" in log.read_text(), what="a line of the rank")
        logs = JobLogs()
        logs.follow(0, rank.pid or 0, uid=HOSTILE)
        for secret in machine.secrets:
            clear(log)
            log.symlink_to(secret)
            logs.read_on()
            logs.follow(0, rank.pid or 0, uid=HOSTILE)
            logs.read_on()
        body = logs.body(0) or ""
        logs.close()
    assert "mine" in body
    assert "SECRET" not in body


def test_a_log_that_its_user_may_only_write_is_not_read(machine: Machine) -> None:
    """Root opened the log for the process, as a shell does with ``sudo -u user command >> log``."""
    log = machine.hostile_folder() / "log"
    log.write_text(f"{SECRET}\n")
    with running_as(HOSTILE, print_and_wait, machine.spool, "bad", log) as rank:
        until(lambda: "mine" in log.read_text(), what="a line of the rank")
        os.chown(log, 0, 0)
        logs = JobLogs()
        logs.follow(0, rank.pid or 0, uid=HOSTILE)
        assert logs.body(0) is None


def wait_for_ever() -> None:
    threading.Event().wait()


@pytest.mark.parametrize("uid", [0, HONEST])
def test_a_rank_that_names_the_process_of_another_user_is_not_served(
    machine: Machine, capfd: pytest.CaptureFixture[str], uid: int
) -> None:
    as_user(HOSTILE, record, machine.spool, "bad")
    as_user(HONEST, record, machine.spool, "good")
    meta = rank_folder(machine) / "meta.json"
    with running_as(uid, wait_for_ever) as other:
        fields = json.loads(meta.read_text())
        fields |= {"pid": other.pid, "meta": {BORN: birth_of(other.pid or 0)}}
        meta.write_text(json.dumps(fields))
        host, watch = Host(machine.spool), EvidenceWatch(machine.spool)
        for _ in range(2 * SURE_AFTER):
            host.find_ranks()
            watch.check()
        watch.close()
        assert list(host.ranks) == [rank_folder(machine, "good")]
        assert not [owner for owner, _ in watch.queue.batches() if owner[0] == "bad"]
        assert take_stack(RankReader(rank_folder(machine)).identity()) is None
        logs = JobLogs()
        logs.follow(0, other.pid or 0, uid=HOSTILE)
        assert logs.body(0) is None
    assert capfd.readouterr().err.count("cannot read") == 1


def test_agent_does_not_connect_to_the_socket_of_another_process(machine: Machine) -> None:
    as_user(HOSTILE, record, machine.spool, "bad")
    identity = RankReader(rank_folder(machine)).identity()
    with socket.socket(socket.AF_UNIX) as server:
        path = machine.root / "of-root" / "socket"
        server.bind(str(path))
        server.listen()
        server.settimeout(0.2)
        named = replace(identity, pid=os.getpid(), meta={**identity.meta, META_KEY: str(path)})
        assert ask_handler(named, "dump_traceback") is None
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_dump_is_read_with_the_rights_of_the_ranks_user(machine: Machine) -> None:
    as_user(HOSTILE, record, machine.spool, "bad")
    identity = RankReader(rank_folder(machine)).identity()
    closed = machine.root / "closed"
    closed.mkdir(mode=0o700)
    of_root, out_of_reach, own = closed / "of-root", closed / "given", machine.hostile_folder() / "dump"
    link = own.with_name("link")
    link.symlink_to(out_of_reach)
    for path in (of_root, out_of_reach, own):
        path.write_text('{"entries": [], "pg_status": {"SECRET": {}}}')
    for path in (out_of_reach, own):
        os.chown(path, HOSTILE, HOSTILE)
    found = {path: read_flight_files(naming(identity, path), 0) for path in (of_root, out_of_reach, link, own)}
    assert "SECRET" in (found.pop(own) or "")
    assert set(found.values()) == {None}


def naming(identity: RankIdentity, path: Path) -> RankIdentity:
    """The rank with ``path`` as the file of its flight recorder."""
    return replace(identity, meta={**identity.meta, DUMP_PATHS: json.dumps([str(path)])})


def swap_many_times(secret: Path, folder: Path, log: Path, done: Path) -> None:
    """Replace files and folders by links and back, ``SWAPS`` times."""
    (folder / "evidence").mkdir(exist_ok=True)
    (folder / "evidence" / "log").touch()
    places = [folder / "meta.json", folder / "shipping", folder / "evidence", folder / "evidence" / "log", folder, log]
    for place in places:
        place.with_name(place.name + ".link").symlink_to(secret)
    for number in range(SWAPS):
        place = places[number % len(places)]
        link, away = (place.with_name(place.name + suffix) for suffix in (".link", ".away"))
        with suppress(OSError):
            os.rename(place, away)
            os.rename(link, place)
            os.rename(place, link)
        with suppress(OSError):
            os.rename(away, place)
    done.touch()


def test_agent_uses_no_other_file_during_10000_swaps_between_check_and_use(machine: Machine) -> None:
    log, done = machine.hostile_folder() / "log", machine.hostile_folder() / "done"
    as_user(HONEST, record, machine.spool, "good")
    before, rounds, texts = machine.snapshot(), 0, set[str]()
    with running_as(HOSTILE, print_and_wait, machine.spool, "bad", log):
        until(lambda: "mine" in log.read_text(), what="a line of the rank")
        keep(rank_folder(machine), MINE)
        with running_as(HOSTILE, swap_many_times, machine.secrets[1], rank_folder(machine), log, done) as swapping:
            while swapping.is_alive():
                texts |= set(serve(machine))
                rounds += 1
    assert done.exists(), "the attack ended early"
    assert rounds > 1
    assert not [text for text in texts if "SECRET" in text]
    assert machine.snapshot() == before
    host = Host(machine.spool)
    host.find_ranks()
    assert rank_folder(machine, "good") in host.ranks


def test_a_truncated_file_does_not_end_the_agent(machine: Machine) -> None:
    """Access to a mapped page of a shorter file would kill the agent with SIGBUS."""
    as_user(HOSTILE, record, machine.spool, "bad")
    tail = RankTail(rank_folder(machine))
    chunk = tail.read()
    assert chunk is not None
    for name in ("shipping", "state", "000000.rec"):
        os.truncate(rank_folder(machine) / name, 0)
    tail.shipped(chunk)
    serve(machine)
    assert RankReader(rank_folder(machine)).acked() == chunk.next_seq


def test_run_name_used_by_another_user_is_refused(machine: Machine) -> None:
    as_user(HOSTILE, record, machine.spool, "taken")
    with (
        pytest.raises(UnsafeFolderError, match="belongs to another user"),
        make_folder(rank_folder(machine, "taken"), below=RANK_FOLDER_DEPTH),
    ):
        pass


@pytest.fixture(params=["openat2", "an older kernel"])
def _each_way_to_open(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "openat2":
        monkeypatch.setattr(access, "_has_openat2", lambda: False)


@pytest.mark.usefixtures("_each_way_to_open")
@pytest.mark.parametrize("kind", ["bind", "fuse"])
def test_a_file_system_that_is_mounted_below_the_spool_is_never_used(machine: Machine, kind: str) -> None:
    """The daemon of a mount could report any owner and block the agent forever."""
    if kind == "fuse" and not FUSE.exists():
        pytest.skip("no FUSE")
    as_user(HOSTILE, record, machine.spool, "bad")
    journal.append(rank_folder(machine).parent, "host", [EVENT])
    as_user(0, serve_what_is_mounted, machine, kind)


def serve_what_is_mounted(machine: Machine, kind: str) -> None:
    leave_mount_namespace()
    rank = rank_folder(machine)
    for folder in (rank.parent.parent, rank.parent, rank):
        with mounted(kind, folder):
            serve(machine)
            host = Host(machine.spool)
            host.find_ranks()
            assert not host.ranks
            with pytest.raises(UnsafeFolderError, match="nothing below it may be a mount point"):
                open_folder(rank, below=RANK_FOLDER_DEPTH).__enter__()
            with pytest.raises(UnsafeFolderError, match="is a mount point"):
                make_folder(folder, below=1).__enter__()
    for name in ("000000.rec", "meta.json", "state", "shipping", "evidence/log", "../hosts", "evidence"):
        keep(rank, MINE)
        with mounted(kind, rank / name):
            serve(machine)
            if name == "evidence":
                sweep(machine.spool, keep_days=0)
    assert not (rank / "000000.rec").exists(), "the folder was not swept"
    assert (rank / "evidence" / "log").exists()


def test_a_rank_that_is_served_cannot_name_the_process_of_another_user_later(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, log = rank_folder(machine), machine.hostile_folder() / "log"
    with running_as(HOSTILE, print_and_wait, machine.spool, "bad", log), running_as(HONEST, wait_for_ever) as other:
        until(lambda: "mine" in log.read_text(), what="a line of the rank")
        host, watch = Host(machine.spool), EvidenceWatch(machine.spool)
        host.find_ranks()
        host.beats()
        watch.check()
        assert list(host.ranks) == [folder]
        name_another_process(folder, other.pid or 0)
        for _ in range(SURE_AFTER):
            host.beats()
            watch.check()
        assert host.ranks[folder].tail.identity.pid != other.pid
        watch.close()
    assert not [one for _, told in watch.queue.batches() for one in told if f'"pid": {other.pid}' in one.body]
    assert capfd.readouterr().err.count(f"but not process {other.pid}") == 1


def name_another_process(folder: Path, pid: int) -> None:
    fields = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(fields | {"pid": pid, "meta": {BORN: birth_of(pid)}}))
    with (folder / "state").open("r+b") as page:
        page.seek(layout.STATE_PAGE.fields["pid"][1])
        page.write(pid.to_bytes(8, "little"))


def end_with_parent_though_rights_change(parent: int, place: Path, when: str) -> None:
    tie_to_parent(parent)
    with rights_of(HOSTILE):
        if when == "during":
            place.write_text(str(os.getpid()))
            until(lambda: os.getppid() != parent, what="the end of the parent")
    if when == "after":
        place.write_text(str(os.getpid()))
    wait_for_ever()


def start_a_child(place: Path, when: str) -> None:
    parent = os.getpid()
    if os.fork() == 0:
        end_with_parent_though_rights_change(parent, place, when)
    wait_for_ever()


@pytest.mark.parametrize("when", ["during", "after"])
def test_a_process_that_worked_with_the_rights_of_a_user_still_ends_with_its_parent(
    machine: Machine, when: str
) -> None:
    place = machine.hostile_folder() / "child"
    with running_as(0, start_a_child, place, when):
        until(lambda: place.exists() and place.read_text(), what="the child")
        child = psutil.Process(int(place.read_text()))
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, what="its end")


SANDBOX = """
mount --bind "$1" "$1" && mount -o remount,bind,ro / && shift &&
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+setuid,+setgid,+sys_ptrace "$@"
"""
"""What ``deploy/systemd/rankscope-agent.service`` allows: three capabilities, and only the spool is writable."""


@pytest.mark.parametrize("where", [pytest.param("without a sandbox", marks=pytest.mark.long), "in the unit's sandbox"])
def test_agent_under_attack_serves_the_other_users(machine: Machine, tmp_path: Path, where: str) -> None:
    log, done = machine.hostile_folder() / "log", machine.hostile_folder() / "done"
    good_log = machine.root / "of-honest" / "log"
    as_user(HONEST, good_log.touch)
    collector = Road(tmp_path, "embedded:" + str(tmp_path / "store"), num_ranks=0)
    inside = ["unshare", "--mount", "sh", "-c", SANDBOX, "sh", str(machine.spool)] if "unit" in where else []
    options = ["--spool", str(machine.spool), "--collector", collector.url, "--interval", "0.1", "--stall-floor", "0.2"]
    agent = Part("agent", [*inside, sys.executable, "-m", "telemetry.agent", *options], tmp_path / "agent.log")
    with ExitStack() as stack:
        for part in (collector.collector, agent):
            stack.callback(part.kill)
        collector.start_collector()
        good = stack.enter_context(running_as(HONEST, print_and_wait, machine.spool, "good", good_log))
        stack.enter_context(running_as(HOSTILE, print_and_wait, machine.spool, "bad", log))
        until(lambda: "mine" in log.read_text() and "mine" in good_log.read_text(), what="lines of the ranks")
        before = machine.snapshot()
        agent.start()
        swapping = stack.enter_context(
            running_as(HOSTILE, swap_many_times, machine.secrets[1], rank_folder(machine), log, done)
        )
        client = stack.enter_context(CollectorClient(collector.url))
        until(lambda: client.read(Ranks(run_id="good", attempt=0)).num_rows, what="the honest rank in the store")
        good.kill()
        until(lambda: "mine" in evidence_of(client, "good"), seconds=60, what="evidence of its death")
        until(lambda: not swapping.is_alive(), seconds=60, what="the end of the attack")
        assert done.exists(), "the attack ended early"
        assert agent.running, agent.said()
        assert machine.snapshot() == before
        assert "SECRET" not in evidence_of(client, "good") + evidence_of(client, "bad") + agent.said()
        files = [path for path in machine.spool.rglob("*") if path.is_file() and not path.is_symlink()]
        assert not [path for path in files if b"SECRET" in path.read_bytes()]


def evidence_of(client: CollectorClient, run: str) -> str:
    return str(client.read(StoredEvidence(run_id=run, attempt=0)).to_pylist())
