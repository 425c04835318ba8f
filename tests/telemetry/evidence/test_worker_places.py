"""The agent opens the socket of a worker server only in known folders, and never through a link."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from telemetry.evidence.worker_client import ask_handler, checked_place, open_socket
from telemetry.record.worker_server import META_KEY
from telemetry.records import RankIdentity
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.telemetry.worker_socket import serve_handlers

OTHER = 54321
"""A user id that does not exist on this machine."""
RANK = "run/0/rank-00000"


@contextmanager
def listening(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield


def opens(path: Path, folder: Path | None) -> bool:
    try:
        with open_socket(path, user=os.geteuid(), folder=folder):
            return True
    except OSError:
        return False


def test_socket_of_a_rank_is_opened_in_the_rank_folder_that_the_agent_sees(tmp_path: Path) -> None:
    """A rank in a container may see its spool under another path."""
    folder = tmp_path / RANK
    with listening(folder / "worker/socket"):
        assert opens(folder / "worker/socket", folder)
        assert opens(Path("/in/a/container") / RANK / "worker/socket", folder)


@pytest.mark.parametrize("name", ["run", "run/0", RANK, f"{RANK}/worker", f"{RANK}/worker/socket"])
def test_socket_is_not_opened_through_a_link_below_the_spool(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    spool = tmp_path_factory.mktemp("s")  # a path of a socket must be short
    with listening(spool / RANK / "worker/socket"):
        moved = (spool / name).rename(spool / "real")
        (spool / name).symlink_to(moved)
        assert not opens(spool / RANK / "worker/socket", spool / RANK)


def test_handler_is_not_called_through_a_linked_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    end = serve_handlers(tmp_path / "real/socket", {"ping": b"pong"})
    answers = [ask_handler(rank_at(tmp_path / name / "socket"), "ping") for name in ("real", "link")]
    end()
    assert answers == ["pong", None]


def rank_at(socket: Path) -> RankIdentity:
    """This process, as a rank."""
    return RankIdentity(
        run_id="run", attempt=0, rank=0, host="here", local_rank=0, pid=os.getpid(), topology=Topology(), started_ns=1,
        uid=os.geteuid(), meta={META_KEY: str(socket)},
    )  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives a folder away")
def test_socket_in_a_folder_of_another_user_is_not_opened(tmp_path: Path) -> None:
    with listening(tmp_path / RANK / "worker/socket"):
        os.chown(tmp_path / RANK / "worker", OTHER, -1)
        assert not opens(tmp_path / RANK / "worker/socket", tmp_path / RANK)


@each_case(
    "path", [f"/tmp/elsewhere/rankscope-{OTHER}-workers/x", "/tmp/x", "/mounted/run/0/rank-00001/worker/socket", "x"]
)
def test_rank_of_another_user_cannot_point_the_agent_to_another_folder(path: str) -> None:
    with pytest.raises(PermissionError):
        checked_place(Path(path), user=OTHER, folder=Path("/spool", RANK))


def test_short_socket_path_in_the_temporary_folder_is_accepted() -> None:
    short = Path(f"/tmp/rankscope-{OTHER}-workers/0123")
    assert checked_place(short, user=OTHER, folder=Path("/spool", RANK)) == (short, 1)
