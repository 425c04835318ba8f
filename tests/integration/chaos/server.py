"""The ClickHouse server of a world. It is killed, paused and started at any moment, and its disk can be full."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.clickhouse_server import ClickHouseServer
from tests.integration.chaos.small_disk import SmallDisk, small_disk
from tests.parts import require

DISK_MIB = 512


class DisturbedServer(ClickHouseServer):
    """``disk``: the disk of its data, if the disk can be filled."""

    disk: SmallDisk | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the server unless it runs. Do not wait for its first answer."""
        if not self.running:
            super().launch()

    def tell(self, number: signal.Signals) -> None:
        """Send a signal if the server runs."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def url_through(self, port: int, database: str) -> str:
        """The address of the server for a client that uses a relay."""
        return self.url(database).replace(f":{self.port}/", f":{port}/")


@contextmanager
def disturbed_server(*, disks: bool) -> Iterator[DisturbedServer]:
    """A running server, removed with its data at the end. Skips a test (fails it in CI) if the program is missing."""
    program = require("clickhouse-server")
    with ExitStack() as cleanup:
        folder = Path(tempfile.mkdtemp(prefix="rankscope-chaos-server-", dir="/dev/shm"))
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        disk = cleanup.enter_context(small_disk(folder / "disk", size_mib=DISK_MIB)) if disks else None
        server = DisturbedServer(program, disk.folder if disk else folder)
        server.disk = disk
        cleanup.callback(server.kill)
        server.start()
        yield server
