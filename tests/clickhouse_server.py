"""Debian's ClickHouse server as a private process: its own folder, ports and configuration, ended by its pid."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clickhouse_driver import Client
from clickhouse_driver.errors import Error

from tests.certificates import Pair
from tests.deadline import until
from tests.parts import require

USER = "scope"
PASSWORD = "p@ss:w/rd"
PASSWORD_IN_URL = "p%40ss%3Aw%2Frd"
READER = "reader"
"""May ask, and set nothing; has the same password."""
SQL_USER = "sql"
"""The same with limits of time and size."""

_CONFIG = """<yandex>
  <logger><level>warning</level><log>{folder}/server.log</log><errorlog>{folder}/error.log</errorlog></logger>
  <listen_host>127.0.0.1</listen_host>
  <tcp_port>{tcp}</tcp_port><http_port>{http}</http_port><interserver_http_port>{peer}</interserver_http_port>
  <path>{folder}/data/</path><tmp_path>{folder}/tmp/</tmp_path><users_config>{folder}/users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>{tls}
</yandex>
"""
_TLS = """
  <tcp_port_secure>{port}</tcp_port_secure>
  <openSSL><server>
    <certificateFile>{certificate}</certificateFile><privateKeyFile>{key}</privateKeyFile>
    <verificationMode>none</verificationMode><loadDefaultCAFile>false</loadDefaultCAFile>
  </server></openSSL>"""
_USERS = """<yandex><profiles><default/><reader><readonly>1</readonly></reader>
<sql><readonly>1</readonly><max_execution_time>2</max_execution_time><max_result_bytes>10000000</max_result_bytes></sql>
</profiles>
<quotas><default/></quotas><users>
  <{user}><password>{password}</password><networks><ip>127.0.0.1</ip></networks>
  <profile>default</profile><quota>default</quota></{user}>
  <{reader}><password>{password}</password><networks><ip>127.0.0.1</ip></networks>
  <profile>reader</profile><quota>default</quota></{reader}>
  <{sql}><password>{password}</password><networks><ip>127.0.0.1</ip></networks>
  <profile>sql</profile><quota>default</quota></{sql}>
</users></yandex>
"""


class ClickHouseServer:
    """A server that can be killed and started again on the same data and ports."""

    def __init__(self, program: str, folder: Path, pair: Pair | None = None) -> None:
        self._program = program
        self._folder = folder
        self.port, self.tls_port, http, peer = free_ports(4)
        tls = _TLS.format(port=self.tls_port, certificate=pair.certificate, key=pair.key) if pair else ""
        config = _CONFIG.format(folder=folder, tcp=self.port, http=http, peer=peer, tls=tls)
        (folder / "config.xml").write_text(config)
        (folder / "users.xml").write_text(_USERS.format(user=USER, reader=READER, sql=SQL_USER, password=PASSWORD))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def data(self) -> Path:
        return self._folder / "data"

    def url(self, database: str, *, user: str = USER) -> str:
        return f"clickhouse://{user}:{PASSWORD_IN_URL}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self.launch()
        self.wait_for_answer()

    def launch(self) -> None:
        """Start the server. Do not wait for its first answer."""
        with (self._folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen(self.command(), stdout=output, stderr=output)

    def wait_for_answer(self) -> None:
        until(self._answers, seconds=60, what="the ClickHouse server")

    def command(self) -> list[str]:
        return [self._program, f"--config-file={self._folder / 'config.xml'}"]

    def kill(self) -> None:
        """SIGKILL. Safe to repeat."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log(self) -> str:
        """The end of what the server wrote."""
        logs = (self._folder / name for name in ("output.log", "server.log"))
        return "\n".join(log.read_text()[-4000:] for log in logs if log.exists())

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        if not _is_open(self.port):  # the driver would print what it met there
            return False
        client = Client("127.0.0.1", port=self.port, user=USER, password=PASSWORD, connect_timeout=1)
        try:
            client.execute("SELECT 1")
        except (Error, OSError, EOFError):
            return False
        finally:
            client.disconnect()
        return True


@contextmanager
def running_server(pair: Pair | None = None, *, in_memory: bool = True) -> Iterator[ClickHouseServer]:
    """A running server, with a port for TLS if it is given a certificate; skips the test (fails it in CI) where the
    program is missing. Its files lie in memory, where there is room for such, or on disk."""
    program = require("clickhouse-server")
    memory = "/dev/shm" if in_memory and Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="rankscope-clickhouse-", dir=memory))
    server = ClickHouseServer(program, folder, pair)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
