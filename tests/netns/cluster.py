"""Hosts of a training as network namespaces of this machine, with a switch whose ports can be set down.

    host-0            host-1    ...   host-3          a namespace each, rs<pid>-<n>-h<i>
    data0   mgmt0     data0   mgmt0   data0   mgmt0
      |       |         |       |       |       |     veth pairs
      d0      m0        d1      m1      d3      m3    ports
     [====== data ======================]             bridge: the training network, 10.78.0.0/24
             [======= mgmt ==============]            bridge: the management network, 10.79.0.0/24
                         |
                     10.79.0.254                      address of the collector    (all of it in rs<pid>-<n>-switch)

If a port goes down, the host's ``data0`` loses its carrier, as with a pulled cable. The address stays, and the kernel
counts the event. The machine's own namespace is not used. With ``ip netns exec``, a process sees ``/sys/class/net`` of
its host.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Self

from tests.parts import SYSTEM_PATH

SWITCH = -1
"""The place that is not a host: it has the bridges, the ports and the collector."""
DATA_LINK, MGMT_LINK = "data0", "mgmt0"
COLLECTOR_ADDRESS = "10.79.0.254"
NAMESPACES = Path("/run/netns")
CLONE_NEWNET, CLONE_NEWNS = 0x4000_0000, 0x0002_0000
MS_SLAVE, MS_REC, MNT_DETACH = 1 << 19, 1 << 14, 2
BURST, LATENCY = "4kb", "400ms"
"""Of a slowed link: the size of a burst, and how long a packet may queue before it is dropped."""
_OURS = re.compile(r"rs(\d+)-\d+-\w+")
_libc = ctypes.CDLL(None, use_errno=True)
_serials = iter(range(1_000_000))


class Cluster:
    """Hosts that exist during the block. At its end, or on SIGTERM, their processes are killed."""

    def __init__(self, num_hosts: int = 4) -> None:
        self.num_hosts = num_hosts
        self._prefix = f"rs{os.getpid()}-{next(_serials)}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        sweep()
        with ExitStack() as undo:
            undo.enter_context(_sigterm_unwinds())
            undo.callback(remove_namespaces, self.namespaces)
            undo.callback(self._end_all)
            self._build()
            self._cleanup = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    @property
    def hosts(self) -> range:
        return range(self.num_hosts)

    @property
    def namespaces(self) -> list[str]:
        return [self.namespace(place) for place in (SWITCH, *self.hosts)]

    def namespace(self, place: int) -> str:
        """The namespace of a host, or of the ``SWITCH``."""
        return f"{self._prefix}-switch" if place == SWITCH else f"{self._prefix}-h{place}"

    def host_name(self, host: int) -> str:
        """The name of a host in the store."""
        return f"host-{host}"

    def data_address(self, host: int) -> str:
        return f"10.78.0.{host + 1}"

    def link_down(self, host: int) -> int:
        """Set the link of the host's ``data0`` down. Return the wall time right before, in nanoseconds."""
        return self._set_port(host, "down")

    def link_up(self, host: int) -> int:
        """Set the link up. Return the wall time right before."""
        return self._set_port(host, "up")

    def unplug(self, host: int) -> None:
        """Set both links of a host down: the training network and the management network."""
        for port in self._ports(host):
            _run("ip", "-n", self.namespace(SWITCH), "link", "set", port, "down")

    def plug(self, host: int) -> None:
        """Set both links up."""
        for port in self._ports(host):
            _run("ip", "-n", self.namespace(SWITCH), "link", "set", port, "up")

    def flap(self, host: int, seconds: float) -> tuple[int, int]:
        """Set the link down for ``seconds``. Return when it went down and when it came up."""
        down_ns = self.link_down(host)
        try:
            time.sleep(seconds)
        finally:
            up_ns = self.link_up(host)
        return down_ns, up_ns

    def slow(self, host: int, rate: str) -> None:
        """Limit the host's ``data0`` to ``rate`` in both directions. ``rate`` has the form of tc: ``20mbit``."""
        for namespace, device in self._both_ends(host):
            limit = ("tbf", "rate", rate, "burst", BURST, "latency", LATENCY)
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *limit)

    def unslow(self, host: int) -> None:
        """Remove the rate limit, if there is one."""
        for namespace, device in self._both_ends(host):
            with suppress(subprocess.CalledProcessError):
                _run("tc", "-n", namespace, "qdisc", "delete", "dev", device, "root")

    def carrier_downs(self, host: int) -> int:
        """How often the host's ``data0`` has lost its carrier. Its creation counts as 1."""
        return int(self.read_sysfs(host, f"/sys/class/net/{DATA_LINK}/carrier_down_count"))

    def read_sysfs(self, host: int, path: str) -> str:
        """The content of a file as a process on that host sees it."""
        return _run("ip", "netns", "exec", self.namespace(host), "cat", path)

    def run_in(
        self,
        place: int,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        *,
        stdout: IO[bytes] | int | None = None,
        stderr: IO[bytes] | int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program on a host or in the ``SWITCH``. It inherits the environment, with ``env`` added. It is killed
        when the cluster ends. The pid is that of the program itself."""
        inside = [_program("ip"), "netns", "exec", self.namespace(place), *map(str, argv)]
        environment = {**os.environ, **(env or {})}
        process = subprocess.Popen(inside, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        self._processes = [one for one in self._processes if one.poll() is None] + [process]
        return process

    def enter(self, place: int) -> None:
        """Move this thread to a place permanently. For a forked child, before it opens a socket."""
        enter_namespace(self.namespace(place))

    @contextmanager
    def inside(self, place: int) -> Iterator[None]:
        """Move this thread to a place during the block. Sockets that it opens stay there."""
        home = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
        try:
            self.enter(place)
            yield
        finally:
            _set_namespace(home)
            os.close(home)

    def _ports(self, host: int) -> tuple[str, str]:
        return f"d{host}", f"m{host}"

    def _set_port(self, host: int, state: str) -> int:
        at_ns = time.time_ns()
        _run("ip", "-n", self.namespace(SWITCH), "link", "set", f"d{host}", state)
        return at_ns

    def _both_ends(self, host: int) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.namespace(host), DATA_LINK), (self.namespace(SWITCH), f"d{host}")

    def _build(self) -> None:
        _batch([], [f"netns add {name}" for name in self.namespaces])
        _batch(["-n", self.namespace(SWITCH)], self._switch_lines())
        for host in self.hosts:
            _batch(["-n", self.namespace(host)], self._host_lines(host))

    def _switch_lines(self) -> Iterator[str]:
        yield "link set lo up"
        for bridge in ("data", "mgmt"):
            yield f"link add {bridge} type bridge forward_delay 0 mcast_snooping 0"
            yield f"link set {bridge} addrgenmode none up"
        yield f"addr add {COLLECTOR_ADDRESS}/24 dev mgmt"
        for host in self.hosts:
            for port, link, bridge in ((f"d{host}", DATA_LINK, "data"), (f"m{host}", MGMT_LINK, "mgmt")):
                yield f"link add {port} type veth peer name {link} netns {self.namespace(host)}"
                yield f"link set {port} master {bridge} addrgenmode none up"

    def _host_lines(self, host: int) -> Iterator[str]:
        yield "link set lo up"
        for link, address in ((DATA_LINK, self.data_address(host)), (MGMT_LINK, f"10.79.0.{host + 1}")):
            yield f"link set {link} addrgenmode none up"
            yield f"addr add {address}/24 dev {link}"

    def _end_all(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()


def enter_namespace(name: str) -> None:
    """Move this thread permanently into the namespace with this name."""
    there = os.open(NAMESPACES / name, os.O_RDONLY)
    try:
        _set_namespace(there)
    finally:
        os.close(there)


def enter_host(name: str) -> None:
    """Move this thread permanently to a host, with its ``/sys/class/net``, as ``ip netns exec`` does."""
    enter_namespace(name)
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _check(_libc.mount(b"", b"/", None, MS_SLAVE | MS_REC, None), "mount")
    _check(_libc.umount2(b"/sys", MNT_DETACH), "umount")
    _check(_libc.mount(name.encode(), b"/sys", b"sysfs", 0, None), "mount")


def sweep() -> None:
    """Remove the namespaces of clusters whose process is dead, and kill the processes in them."""
    if not NAMESPACES.is_dir():
        return
    owners = {path.name: match[1] for path in NAMESPACES.iterdir() if (match := _OURS.fullmatch(path.name))}
    remove_namespaces([name for name, pid in owners.items() if not Path("/proc", pid).exists()])


def remove_namespaces(names: Sequence[str]) -> None:
    """Kill the processes in these namespaces by pid, and remove the namespaces. Skip missing ones."""
    present = [name for name in names if (NAMESPACES / name).exists()]
    for name in present:
        for pid in _run("ip", "netns", "pids", name).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    _batch(["-force"], [f"netns delete {name}" for name in present])


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """Let SIGTERM raise SystemExit if it has no other handler, so that ``with`` blocks clean up."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _set_namespace(fd: int) -> None:
    _check(_libc.setns(fd, CLONE_NEWNET), "setns")


def _check(status: int, call: str) -> None:
    if status:
        raise OSError(ctypes.get_errno(), call)


def _batch(options: Sequence[str], lines: "Sequence[str] | Iterator[str]") -> None:
    """Run many commands of ``ip`` in one process."""
    _run("ip", *options, "-batch", "-", words="\n".join(lines))


def _run(program: str, *arguments: str, words: str = "") -> str:
    """Run a program. Return its output.

    Raises:
        CalledProcessError: it failed. A note has its error output.
    """
    command = [_program(program), *arguments]
    done = subprocess.run(command, input=words, capture_output=True, text=True, check=False)
    try:
        done.check_returncode()
    except subprocess.CalledProcessError as error:
        error.add_note(done.stderr)
        raise
    return done.stdout


def _program(name: str) -> str:
    found = shutil.which(name, path=SYSTEM_PATH)
    assert found is not None, f"no {name} on this machine"
    return found
