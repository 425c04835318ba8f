"""`rankscope doctor --job`: reads the environment of a job on this host, from this command or from running ranks."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from diagnose.nodecheck.check import Check
from diagnose.nodecheck.job_settings import TCP_RETRIES, JobSettings, TopologyFile, check_job, read_conf
from diagnose.settings import DetectorSettings
from telemetry.errors import UnknownRunError, UnreadableError, UsageError
from telemetry.evidence.rank_state import check_owner
from telemetry.files.access import open_input
from telemetry.process.child_process import BORN, birth_of
from telemetry.process.pid_namespace import pid_of
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.records import RankIdentity
from telemetry.settings import spool_of
from ui.cli.commands.doctor import DoctorOptions

MAX_BYTES = 65536
MOST_RANKS = 64
"""At most this many ranks of this host are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the job. ``proc``: its folder in ``/proc``."""

    name: str
    proc: Path
    meta: dict[str, str] = field(default_factory=dict)
    """What the rank reports about itself."""

    def environment(self) -> dict[str, str]:
        """The environment with which the program was started, completed from the configuration files of NCCL. Variables
        override the files."""
        text = (self.proc / "environ").read_bytes().decode(errors="replace")
        given = dict(pair.partition("=")[::2] for pair in text.split("\0") if "=" in pair)
        home = Path(given.get("HOME", "/")) / ".nccl.conf"
        files = (Path(given.get("NCCL_CONF_FILE") or home), Path("/etc/nccl.conf"))
        for path in files:
            with suppress(OSError):
                given = read_conf(self._text(path)) | given
        return given

    def topology(self, path: str) -> TopologyFile | None:
        if not path:
            return None
        try:
            return TopologyFile(text=self._text(Path(path)))
        except OSError as error:
            return TopologyFile(error=error.strerror or str(error))

    def _text(self, path: Path) -> str:
        """The first ``MAX_BYTES`` of a file. ``path`` is the path in the process, which can be in a container."""
        place = self.proc / "cwd" / path if not path.is_absolute() else self.proc / "root" / path.relative_to("/")
        with open_input(place) as file:
            return file.read(MAX_BYTES).decode(errors="replace")


def checks_of_job(options: DoctorOptions) -> list[Check]:
    """Check the settings of a job.

    Raises:
        UnknownRunError: no rank of the run is alive on this host.
        UsageError: the environment of a rank cannot be read.
    """
    processes = [Process(name="this command", proc=Path("/proc/self"))]
    if options.run is not None:
        processes = _ranks(spool_of() if options.spool is None else options.spool, options.run, options.attempt)
    elif options.spool is not None:
        raise UsageError("--spool has no effect without --run", hint="name the run: --run NAME")
    flap_s = DetectorSettings.from_environment().longest_flap_s if options.flap is None else options.flap
    return check_job(_settings(processes, flap_s))


def _settings(processes: list[Process], flap_s: float) -> JobSettings:
    try:
        environments = {process.name: process.environment() for process in processes}
    except OSError as error:
        raise UsageError(
            f"cannot read the environment of a rank: {error}",
            hint="run this command as the user of the job, or as root",
        ) from error
    first = processes[0]
    timeout = first.meta.get("collective_timeout_s")
    return JobSettings(
        environments=environments,
        flap_s=flap_s,
        backend=first.meta.get("backend", "nccl"),
        timeout_s=float(timeout) if timeout else None,
        topology=first.topology(environments[first.name].get("NCCL_TOPO_FILE", "")),
        tcp_retries=_tcp_retries(),
        has_infiniband=Path("/sys/class/infiniband").is_dir() and any(os.scandir("/sys/class/infiniband")),
    )


def _tcp_retries() -> int:
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys/net/ipv4/tcp_retries2").read_text())
    return TCP_RETRIES


def _ranks(spool: Path, run: str, attempt: int | None) -> list[Process]:
    """The living ranks of the newest attempt on this host."""
    found: list[tuple[RankIdentity, int]] = []
    for folder in find_rank_dirs(spool, run, attempt):
        with suppress(UnreadableError):
            identity = RankReader(folder).identity()
            check_owner(identity)
            pid = pid_of(identity)
            if pid and birth_of(pid) == identity.meta.get(BORN, ""):
                found.append((identity, pid))
    if not found:
        raise UnknownRunError(
            f"no rank of run {run} is alive on this host, with files in {spool}",
            hint="give the folder of rank files with --spool: OUT/spool for rankscope train",
        )
    newest = max(identity.attempt for identity, _ in found)
    of_newest = sorted((identity.rank, pid, identity.meta) for identity, pid in found if identity.attempt == newest)
    return [
        Process(name=f"rank {rank}", proc=Path(f"/proc/{pid}"), meta=dict(meta))
        for rank, pid, meta in of_newest[:MOST_RANKS]
    ]
