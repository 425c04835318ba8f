"""A cluster of real servers on one machine: ZooKeeper, and a ClickHouse server for each replica.

    ZooKeeper 127.0.0.1:p0          folder/zookeeper
      |
      +-- shard 1: replica a  :p1   folder/1a      config.xml + conf.d/cluster.xml
      |            replica b  :p2   folder/1b
      +-- shard 2: replica a  :p3   folder/2a
                   replica b  :p4   folder/2b

The kernel kills every server when the test process ends, however it ends.
"""

import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from clickhouse_driver import Client

from tests.clickhouse_server import PASSWORD, PASSWORD_IN_URL, USER, ClickHouseServer, free_ports
from tests.deadline import until
from tests.parts import require, require_zookeeper

CLUSTER = "tested"
_ZOOKEEPER = Path("/usr/share/java/zookeeper.jar")
_JAVA_OPTIONS = (
    *("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1", "-XX:-UsePerfData"),
    *("-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true"),
)
_ZOOKEEPER_CONFIG = """
tickTime=3000
dataDir={folder}
clientPortAddress=127.0.0.1
clientPort={port}
maxClientCnxns=0
4lw.commands.whitelist=srvr
preAllocSize=4096
"""
# Long timeouts, because a session must not expire while the machine is busy.
_SERVER = """<yandex>
  <zookeeper><node><host>127.0.0.1</host><port>{zookeeper}</port></node>
    <session_timeout_ms>60000</session_timeout_ms><operation_timeout_ms>60000</operation_timeout_ms></zookeeper>
  <remote_servers><{cluster}>{shards}
  </{cluster}></remote_servers>
  <macros><shard>{shard}</shard><replica>{replica}</replica></macros>
  <distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>
  <interserver_http_host>127.0.0.1</interserver_http_host>
  <mark_cache_size>16777216</mark_cache_size><uncompressed_cache_size>0</uncompressed_cache_size>
  <merge_tree><zookeeper_session_expiration_check_period>1</zookeeper_session_expiration_check_period></merge_tree>
  <max_concurrent_queries>100</max_concurrent_queries>
</yandex>
"""
_SHARD = "\n    <shard><internal_replication>true</internal_replication>{replicas}</shard>"
_REPLICA = """
      <replica><host>127.0.0.1</host><port>{port}</port><user>{user}</user><password>{password}</password></replica>"""


@dataclass(frozen=True, slots=True)
class Layout:
    """Number of shards, and of replicas of each shard."""

    shards: int
    replicas: int


class ZooKeeper:
    """A server that can be killed and started again on the same data and port."""

    def __init__(self, folder: Path) -> None:
        require_zookeeper(_ZOOKEEPER)
        self._java = require("java")
        self._folder = folder
        folder.mkdir()
        (self.port,) = free_ports(1)
        (folder / "zoo.cfg").write_text(_ZOOKEEPER_CONFIG.format(folder=folder, port=self.port))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self._java, *_JAVA_OPTIONS, "-cp", str(_ZOOKEEPER)]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._folder / "zoo.cfg")]
        with (self._folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen(ending_with_parent(command), stdout=output, stderr=output)
        until(self._answers, seconds=60, what="ZooKeeper")

    def kill(self) -> None:
        """SIGKILL. Safe to repeat."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "output.log").read_text()[-2000:]
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False


class Replica(ClickHouseServer):
    """One server of a cluster."""

    def __init__(self, program: str, folder: Path, *, shard: int, name: str) -> None:
        folder.mkdir()
        super().__init__(program, folder)
        self.shard = shard
        self.name = name

    def join(self, zookeeper: int, shards: str) -> None:
        """Write the configuration of the cluster."""
        (self._folder / "conf.d").mkdir()
        text = _SERVER.format(zookeeper=zookeeper, cluster=CLUSTER, shards=shards, shard=self.shard, replica=self.name)
        (self._folder / "conf.d" / "cluster.xml").write_text(text)

    def command(self) -> list[str]:
        return ending_with_parent(super().command())

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """The answer of this server alone, whatever the cluster does."""
        client = Client("127.0.0.1", port=self.port, user=USER, password=PASSWORD)
        try:
            answer: list[tuple[object, ...]] = client.execute(sql)
            return answer
        finally:
            client.disconnect()

    def empty(self) -> None:
        """Remove all data of a killed server, as after the loss of its disk."""
        assert self._process is None
        shutil.rmtree(self.data)

    def restore_from(self, other: "Replica") -> None:
        """Give an empty server the tables of another replica of its shard. It fetches their rows when it starts."""
        shutil.copytree(other.data / "metadata", self.data / "metadata")
        for database in (self.data / "metadata").iterdir():
            if database.is_dir():
                (self.data / "data" / database.name).mkdir(parents=True, exist_ok=True)
        (self.data / "flags").mkdir()
        (self.data / "flags" / "force_restore_data").touch()


class Cluster:
    """ZooKeeper and all replicas."""

    def __init__(self, program: str, folder: Path, layout: Layout) -> None:
        self.zookeeper = ZooKeeper(folder / "zookeeper")
        self.replicas = [
            Replica(program, folder / f"{shard}{name}", shard=shard, name=name)
            for shard in range(1, layout.shards + 1)
            for name in "abcdefgh"[: layout.replicas]
        ]
        shards = "".join(_shard(self.of_shard(shard)) for shard in range(1, layout.shards + 1))
        for replica in self.replicas:
            replica.join(self.zookeeper.port, shards)

    def of_shard(self, shard: int) -> list[Replica]:
        return [replica for replica in self.replicas if replica.shard == shard]

    def start(self) -> None:
        self.zookeeper.start()
        for replica in self.replicas:
            replica.launch()
        for replica in self.replicas:
            replica.wait_for_answer()

    def kill(self) -> None:
        for server in (*self.replicas, self.zookeeper):
            server.kill()

    def url(self, database: str, replicas: Sequence[Replica] | None = None) -> str:
        """The address of the cluster for clients that know ``replicas``, in this order. None: all."""
        hosts = ",".join(f"127.0.0.1:{replica.port}" for replica in replicas or self.replicas)
        return f"clickhouse://{USER}:{PASSWORD_IN_URL}@{hosts}/{database}?cluster={CLUSTER}"


@contextmanager
def running_cluster(layout: Layout) -> Iterator[Cluster]:
    """A running cluster. Its files are in memory if possible. Skips the test (fails it in CI) if a program is
    missing."""
    program = require("clickhouse-server")
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with ExitStack() as cleanup:
        folder = Path(tempfile.mkdtemp(prefix="rankscope-cluster-", dir=memory))
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = Cluster(program, folder, layout)
        cleanup.callback(cluster.kill)
        cluster.start()
        yield cluster


def ending_with_parent(command: list[str]) -> list[str]:
    """``command``, as a process that the kernel kills when its parent ends."""
    return [require("setpriv"), "--pdeathsig", "KILL", *command]


def _shard(replicas: Sequence[Replica]) -> str:
    entries = (_REPLICA.format(port=replica.port, user=USER, password=PASSWORD) for replica in replicas)
    return _SHARD.format(replicas="".join(entries))
