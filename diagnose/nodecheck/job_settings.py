"""Advice on the settings of a job: does it survive a short loss of a link, and does anything limit NCCL?

link down ---- flap that the job should survive ----> link up
          ---- retries of the card ------------> error      NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT, or TCP
          ---- timeout of collectives ---------> error      torch ends the job

Each of the limits must be longer than the flap. All functions are pure: environments and files come as arguments.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from diagnose.model.outages import Patience, limits_of
from diagnose.nodecheck.check import Check

Environment = Mapping[str, str]
TORCH_TIMEOUT_S = {"nccl": 600.0, "gloo": 1800.0}
"""Defaults of torch for the timeout of a process group."""
HEARTBEAT_S = 480.0
"""Default of TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC."""
BUFFER_BYTES = 4 * 2**20
"""Default of NCCL_BUFFSIZE."""
SMALL_BUFFER_BYTES, LARGE_BUFFER_BYTES = 2**20, 64 * 2**20
TCP_RETRIES = 15
"""Default of net.ipv4.tcp_retries2."""
IB_RANGES = {"NCCL_IB_TIMEOUT": (1, 31), "NCCL_IB_RETRY_CNT": (1, 7)}
"""Variable -> its least and its largest value. They are fields of five and three bits. With a timeout of 0, there is
never an error."""
FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 120.0
"""Pauses between retransmissions of TCP double, between these limits."""
PER_RANK = re.compile(r"NCCL_(DEBUG_FILE|TOPO_DUMP_FILE|GRAPH_DUMP_FILE|HOSTID|IB_HCA|SOCKET_IFNAME|NET_GDR_\w+)")
"""Variables that may differ between ranks."""
_SETTING = re.compile(r"\s*(NCCL_\w+)\s*=\s*(.*?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyFile:
    """The file at NCCL_TOPO_FILE, as the job sees it."""

    text: str = ""
    """The begin of the file."""
    error: str = ""
    """Why it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What the checks need to know about a job on this host."""

    environments: Mapping[str, Environment]
    """Process, such as ``rank 3`` -> its environment. At least one."""
    flap_s: float
    """The job should survive the loss of a link for this time."""
    backend: str = "nccl"
    timeout_s: float | None = None
    """Timeout of collectives. None: torch's default."""
    topology: TopologyFile | None = None
    """None: NCCL_TOPO_FILE is not set."""
    tcp_retries: int = TCP_RETRIES
    has_infiniband: bool = True
    """Whether this host has InfiniBand or RoCE devices. Without them NCCL uses TCP."""

    @property
    def environment(self) -> Environment:
        """The environment of the first process."""
        return next(iter(self.environments.values()))


def read_conf(text: str) -> dict[str, str]:
    """The variables in the text of an ``nccl.conf``."""
    matches = (_SETTING.fullmatch(line.partition("#")[0]) for line in text.splitlines())
    return {match[1]: match[2] for match in matches if match}


def check_job(job: JobSettings) -> list[Check]:
    """All checks of a job."""
    checks = [*_flap_checks(job), *_same_on_all(job.environments)]
    if job.backend == "nccl":
        checks += [*_error_handling(job), *_channels(job.environment), *_buffers(job.environment), _topology(job)]
    return checks


def _flap_checks(job: JobSettings) -> Iterator[Check]:
    """The time until an error against the length of a flap."""
    timeout_s = job.timeout_s or TORCH_TIMEOUT_S.get(job.backend, TORCH_TIMEOUT_S["nccl"])
    meta = {**job.environment, "backend": job.backend, "collective_timeout_s": f"{timeout_s:g}"}
    timeout, *of_card = limits_of(meta)
    usual = "" if job.timeout_s else ", torch's default"
    yield _survives(
        "timeout of collectives",
        job,
        Patience(seconds=timeout.seconds, setting=timeout.setting + usual),
        "raise the timeout of init_process_group (rankscope train: --collective-timeout)",
    )
    if job.backend == "nccl" and of_card and job.has_infiniband and not _uses_sockets(job.environment):
        yield from _ranges(job.environment)
        hint = "set NCCL_IB_TIMEOUT higher: each step doubles the time. The largest NCCL_IB_RETRY_CNT is 7"
        yield _survives("retries of InfiniBand or RoCE", job, of_card[0], hint)
        return
    setting = f"TCP, net.ipv4.tcp_retries2 = {job.tcp_retries}"
    tcp = Patience(seconds=tcp_gives_up_s(job.tcp_retries), setting=setting)
    yield _survives("retries of TCP", job, tcp, "raise net.ipv4.tcp_retries2 with sysctl")


def _uses_sockets(environment: Environment) -> bool:
    return environment.get("NCCL_IB_DISABLE", "0") == "1" or environment.get("NCCL_NET", "").lower() == "socket"


def _ranges(environment: Environment) -> Iterator[Check]:
    """A failed check for each value that the card cannot use."""
    for name, (least, most) in IB_RANGES.items():
        number = _integer(environment.get(name, f"{most}"))
        if number is None or not least <= number <= most:
            hint = f"use a number from {least} to {most}; the time until an error is unknown now"
            yield Check(name=name, fit=False, found=f"{name}={environment[name]}", hint=hint)


def _survives(name: str, job: JobSettings, patience: Patience, hint: str) -> Check:
    fit = patience.seconds > job.flap_s
    relation = "longer" if fit else "not longer"
    return Check(
        name=name,
        fit=fit,
        found=f"error after {patience.seconds:.3g} s or later ({patience.setting}): {relation} than a flap of "
        f"{job.flap_s:g} s",
        hint="" if fit else hint,
    )


def tcp_gives_up_s(retries: int) -> float:
    """Seconds until TCP reports an error, if nothing is acknowledged: Linux, net.ipv4.tcp_retries2."""
    return sum(min(FIRST_RETRY_S * (1 << number), LONGEST_RETRY_S) for number in range(min(retries, 255) + 1))


def _error_handling(job: JobSettings) -> Iterator[Check]:
    environment = job.environment
    handling = environment.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", environment.get("NCCL_ASYNC_ERROR_HANDLING", ""))
    yield Check(
        name="errors end the job",
        fit=handling != "0",
        found=f"TORCH_NCCL_ASYNC_ERROR_HANDLING is {handling or 'not set'}",
        hint="after an error or a timeout the job hangs. Remove this variable" if handling == "0" else "",
    )
    heartbeat_s = _integer(environment.get("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", f"{HEARTBEAT_S:g}"))
    is_on = environment.get("TORCH_NCCL_ENABLE_MONITORING", "1") != "0"
    fit = not is_on or (heartbeat_s is not None and heartbeat_s > job.flap_s)
    yield Check(
        name="heartbeat of torch's watchdog",
        fit=fit,
        found=f"a watchdog that is stuck for {heartbeat_s} s ends the process" if is_on else "off",
        hint="" if fit else f"set TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC to a number above the flap of {job.flap_s:g} s",
    )
    buffer = environment.get("TORCH_FR_BUFFER_SIZE", environment.get("TORCH_NCCL_TRACE_BUFFER_SIZE", ""))
    yield Check(
        name="flight recorder",
        fit=buffer != "0",
        found=f"TORCH_FR_BUFFER_SIZE is {buffer or 'not set'}",
        hint="a hang leaves no record of collectives. Remove this variable" if buffer == "0" else "",
    )


def _channels(environment: Environment) -> Iterator[Check]:
    """A check of the bounds that replace NCCL's own choice. The newer variables count CTAs: one for each channel."""
    given = {name: environment[name] for kind in ("MIN", "MAX") for name in _channel_names(kind) if name in environment}
    if not given:
        yield Check(name="channels", fit=True, found="NCCL chooses their number")
        return
    numbers = {name: _integer(text) for name, text in given.items()}
    low = max((number or 0 for name, number in numbers.items() if "MIN" in name), default=0)
    high = min((number or 0 for name, number in numbers.items() if "MAX" in name), default=None)
    found = ", ".join(f"{name}={text}" for name, text in given.items())
    if None in numbers.values():
        hint = "use whole numbers: NCCL ignores others"
    elif high is not None and low > high:
        hint = "the minimum is above the maximum. Remove one of them"
    elif high is not None and high < 2:
        hint = "one channel uses a small part of the bandwidth. Remove the maximum, or measure with --node"
    else:
        hint = ""
    yield Check(name="channels", fit=not hint, found=found, hint=hint)


def _channel_names(kind: str) -> Sequence[str]:
    return f"NCCL_{kind}_NCHANNELS", f"NCCL_{kind}_CTAS", f"NCCL_{kind}_NRINGS"


def _buffers(environment: Environment) -> Iterator[Check]:
    text = environment.get("NCCL_BUFFSIZE")
    size = BUFFER_BYTES if text is None else _integer(text)
    if size is None or size <= 0:
        hint = f"use a number of bytes. The default is {BUFFER_BYTES}"
    elif size < SMALL_BUFFER_BYTES:
        hint = "a small buffer limits the bandwidth between nodes. Use 1 MiB or more, and measure"
    elif size > LARGE_BUFFER_BYTES:
        hint = "each connection of each channel has such a buffer: this takes memory of the GPU. Use less, and measure"
    else:
        hint = ""
    found = "NCCL_BUFFSIZE is not set: NCCL uses 4 MiB" if text is None else f"NCCL_BUFFSIZE={text}"
    yield Check(name="buffers", fit=not hint, found=found, hint=hint)


def _topology(job: JobSettings) -> Check:
    path, name = job.environment.get("NCCL_TOPO_FILE", ""), "topology file"
    if job.topology is None:
        return Check(name=name, fit=True, found="NCCL_TOPO_FILE is not set: NCCL reads the topology from the system")
    if job.topology.error:
        hint = "NCCL continues without it, and can choose slow paths. Correct NCCL_TOPO_FILE, or mount the file"
        return Check(name=name, fit=False, found=f"{path}: {job.topology.error}", hint=hint)
    fit = "<system" in job.topology.text
    hint = (
        "" if fit else "the file has no element <system>. Write a new file with NCCL_TOPO_DUMP_FILE on a healthy node"
    )
    return Check(name=name, fit=fit, found=f"{path} can be read", hint=hint)


def _same_on_all(environments: Mapping[str, Environment]) -> Iterator[Check]:
    """A check that all ranks have the same settings of NCCL. Ranks with different settings can hang or be slow."""
    if len(environments) < 2:
        return
    names = sorted(
        {name for each in environments.values() for name in each if name.startswith(("NCCL_", "TORCH_NCCL_"))}
    )
    differing = [
        name
        for name in names
        if not PER_RANK.fullmatch(name) and len({each.get(name) for each in environments.values()}) > 1
    ]
    yield Check(
        name="same on all ranks",
        fit=not differing,
        found=f"these variables differ: {', '.join(differing)}"
        if differing
        else f"{len(environments)} processes, {len(names)} variables",
        hint="start all ranks with the same environment" if differing else "",
    )


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
