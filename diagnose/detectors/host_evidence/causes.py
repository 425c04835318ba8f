"""Why ranks were kept off their cores, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum

MIN_EXPLAINED = 0.5
"""Of the time lost, that a strong witness must account for."""
MIN_EXPLAINED_BY_MEMORY = 0.25
"""The same of paging: it takes processor time besides."""


class Cause(StrEnum):
    """What kept a rank off its core."""

    STOPPED = "stopped"
    QUOTA = "quota"
    MEMORY = "memory"
    PROCESS = "process"
    CROWDED = "crowded"
    STEAL = "steal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What a host says about why."""

    cause: Cause
    share: float
    """Of the time, beyond what others had of it."""
    words: str
    """Continues a sentence about the rank or host."""
    process: str = ""
    """``4711 stress-ng``; empty: none in particular."""
    strong: bool = False

    @property
    def evidence(self) -> dict[str, float | str]:
        told: dict[str, float | str] = {
            "cause": str(self.cause),
            "witnessed_share_of_time": round(float(self.share), 3),
        }
        return told | {"process": self.process} if self.process else told

    def explains(self, lost_share: float) -> bool:
        """Whether it is strong by itself, and accounts for what was lost."""
        least = MIN_EXPLAINED_BY_MEMORY if self.cause is Cause.MEMORY else MIN_EXPLAINED
        return self.strong and self.share >= least * lost_share


def next_step(witness: Witness | None) -> str:
    """What to do on the host, by cause."""
    if witness is None:
        return _NEXT_STEPS[None]
    if witness.cause is Cause.PROCESS:
        return f"end pid {witness.process} or move it to other cores (taskset, a cpuset), or pin the ranks to their own"
    if witness.cause is Cause.MEMORY and witness.process:
        return f"give the ranks memory: end or limit pid {witness.process}; then vmstat 1 must show no swapping"
    return _NEXT_STEPS[witness.cause]


_NEXT_STEPS: dict[Cause | None, str] = {
    None: "look for other processes on its cores, a stopped or niced process and quotas (top, ps -o stat,ni,psr, "
    "cpu.stat of its cgroup); pin the rank to cores of its own",
    Cause.CROWDED: "look for who shares its cores (top, ps -eo pid,psr,pcpu,comm --sort=-pcpu; a container does not "
    "see its neighbours); pin the rank to cores of its own",
    Cause.STOPPED: "find who stops it: a debugger, a scheduler that suspends jobs, a shell's job control, a freezer",
    Cause.QUOTA: "raise or lift the processor limit of its container (cpu.max, resources.limits.cpu), or give it whole "
    "cores",
    Cause.MEMORY: "give the ranks memory: look at what holds it (ps --sort=-rss, memory.stat and memory.max of the "
    "cgroup) and at swapping (vmstat 1)",
    Cause.STEAL: "the machine shares its cores with others: ask for dedicated ones, or take it out of the job",
}
