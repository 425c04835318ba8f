"""Failures that explain a stall without an analysis of waits: a rank that died first, or a link that was lost.

The first rank to die was killed, or it failed by itself. Later ranks failed because of it.

A lost link explains a stalled job if the job stopped at that time. Then no rank is the cause, and while the link may
return it is no hang.

    link of host-2   ----.                      .------        the job stopped within moments of the loss
    job              -------|                     |-|  |--     and continues, perhaps step by step, once the link is up
                         down  stalled          up  each connection sends lost packets again
"""

from collections.abc import Collection
from dataclasses import replace

from diagnose.hang.evidence import NS_PER_S, CutOff, HangEvidence, LogLine, Process, RankEvidence
from diagnose.hang.waits import WaitGraph
from diagnose.model.outages import Outage

STILL_NS = 5 * NS_PER_S
"""If nothing moved for longer than this before the first death, the job hung first and was ended because of that."""
TOGETHER_NS = 1_000_000
TOGETHER_ACROSS_HOSTS_NS = NS_PER_S
LAST_LINES_NS = 60 * NS_PER_S
UNSEEN = "all processes are gone and no stall was observed: these are their last states"
"""A note on evidence that may be that of a healthy job whose ranks all ended at once."""
INTERRUPTIONS = ("KeyboardInterrupt", "SystemExit")
CONSEQUENCES = ("gloo-connection", "lost-peer", "nccl-error", "nccl-warning", "watchdog-timeout")
"""Faults that a lost peer causes."""
MISMATCH = "collective-mismatch"
"""A rank that fails with it received something else than it requested: it is often the victim."""
BESIDE_MISMATCH = (MISMATCH, *CONSEQUENCES, "terminated", "segfault", "python-traceback", "python-exception")
"""Other faults in the log of such a rank. Python reports an abort like a segmentation fault."""
OVER_MISMATCH = ("", "SIGABRT")
"""How such a rank may have died (``ended_by``). Empty: it is not known how."""
ON_PURPOSE = ("SIGTERM", "SIGINT", "SIGHUP")
"""Signals with which launchers, schedulers and people end a rank."""
GIVING_UP = ("SIGABRT", *ON_PURPOSE)
"""Signals that end a rank that aborts a collective, or that is ended on purpose."""
BEFORE_NS = 5 * NS_PER_S
"""A job that stalled longer than this before the link loss stalled for another reason. The limit allows for clock
differences and long transfers."""
AFTER_NS = 30 * NS_PER_S
"""A job that moved for longer than this after the loss does not need that link."""
CLOCKS_NS = NS_PER_S
LATEST_NS = 2**62
GRACE_NS = 5 * NS_PER_S
"""In addition to the length of the outage: retransmissions back off (RFC 6298, the timer doubles)."""


def as_it_stalled(evidence: HangEvidence) -> HangEvidence:
    """The evidence with the ranks in the states that they had during the stall.

    A watchdog or a person ends a hung job later. Then the order of deaths is not evidence, and each rank gets the state
    in which it was last seen alive. The same applies if all ranks have ended and the order was not observed.
    """
    dead = {rank: of_rank for rank, of_rank in evidence.ranks.items() if of_rank.is_dead}
    if not dead:
        return evidence
    stamps = [of_rank.died_ns for of_rank in dead.values() if of_rank.died_ns]
    first_ns = min(stamps, default=0)
    unseen = not stamps and len(dead) == len(evidence.ranks)
    if not unseen and not (first_ns and evidence.moved_ns and first_ns - evidence.moved_ns > STILL_NS):
        return evidence
    revived = {rank: replace(of_rank, process=of_rank.living) for rank, of_rank in dead.items()}
    notes = (*evidence.notes, UNSEEN) if unseen else evidence.notes
    return replace(evidence, ranks={**evidence.ranks, **revived}, notes=notes)


def first_to_fail(evidence: HangEvidence) -> tuple[int, ...]:
    """The first rank that failed, and all that failed at the same time. Empty if no rank failed, or all were ended on
    purpose."""
    failed = {rank: of_rank for rank, of_rank in evidence.ranks.items() if _failed(of_rank)}
    own = {
        rank: of_rank
        for rank, of_rank in failed.items()
        if _failed_over_mismatch(of_rank) or not _shows_lost_peer(of_rank)
    } or failed
    if not own:
        return ()
    stamped = {rank: of_rank for rank, of_rank in own.items() if _failed_ns(of_rank)} or own
    first = min(stamped.values(), key=_failed_ns)
    return tuple(sorted(rank for rank, of_rank in stamped.items() if _together(first, of_rank)))


def all_failed_over_mismatch(evidence: HangEvidence, ranks: Collection[int]) -> bool:
    """Whether each of ``ranks`` failed because a peer sent something else than it requested."""
    return bool(ranks) and all(_failed_over_mismatch(evidence.ranks[rank]) for rank in ranks)


def _failed_over_mismatch(of_rank: RankEvidence) -> bool:
    """Whether a rank failed because of a mismatch: its last lines show one, and no other fault that would end it."""
    faults = [line.fault for line in of_rank.log if line.fault and _is_late(line, of_rank.died_ns)]
    by_itself = of_rank.process is Process.ENDED or of_rank.ended_by in OVER_MISMATCH
    return by_itself and MISMATCH in faults and all(fault in BESIDE_MISMATCH for fault in faults)


def _together(first: RankEvidence, later: RankEvidence) -> bool:
    """Whether two ranks failed at the same time. The limit is wider for ranks of two hosts, because their clocks
    differ."""
    apart_ns = _failed_ns(later) - _failed_ns(first)
    return apart_ns <= (TOGETHER_NS if later.host == first.host else TOGETHER_ACROSS_HOSTS_NS)


def _failed(of_rank: RankEvidence) -> bool:
    """Whether the rank was killed, or ended because of an error that no other rank caused.

    Python ends normally after an error. Then only the log shows the error.
    """
    if of_rank.is_dead:
        return of_rank.ended_by not in ON_PURPOSE
    return of_rank.process is Process.ENDED and any(_is_own_fault(line, of_rank.died_ns) for line in of_rank.log)


def _is_own_fault(line: LogLine, died_ns: int) -> bool:
    """Whether a line shows a fault at the end of the rank: not a fault that it survived long before, and no Ctrl-C."""
    is_fault = line.fault not in ("", "python-traceback") and not line.text.startswith(INTERRUPTIONS)
    return is_fault and _is_late(line, died_ns)


def _is_late(line: LogLine, died_ns: int) -> bool:
    return not died_ns or died_ns - line.at_ns < LAST_LINES_NS


def _shows_lost_peer(of_rank: RankEvidence) -> bool:
    return any(line.fault in CONSEQUENCES for line in of_rank.log)


def _failed_ns(of_rank: RankEvidence) -> int:
    return of_rank.died_ns or min((line.at_ns for line in of_rank.log if line.fault), default=0)


def find_cut_off(evidence: HangEvidence, graph: WaitGraph) -> CutOff | None:
    """The newest outage that explains the stall; None if none does."""
    faulty = [of_rank for of_rank in evidence.ranks.values() if of_rank.has_fault]
    lost_peers = bool(faulty) and all(map(_shows_lost_peer, faulty))
    is_stalled = bool(graph.waits or graph.stuck) or lost_peers
    if not is_stalled or _has_root_off_the_network(evidence, graph) or _has_killed_rank(evidence):
        return None
    newest_first = sorted(evidence.network.outages, key=lambda outage: -outage.down_ns)
    return next((cut_off for outage in newest_first if (cut_off := _cut_off(evidence, outage)) is not None), None)


def _cut_off(evidence: HangEvidence, outage: Outage) -> CutOff | None:
    network, stopped_ns = evidence.network, evidence.moved_ns
    ranks = tuple(sorted(rank for rank, of_rank in evidence.ranks.items() if of_rank.host == outage.host))
    if not ranks or len(ranks) == len(evidence.ranks) or not stopped_ns:
        return None
    taken_ns = max((of_rank.taken_ns for of_rank in evidence.ranks.values()), default=0)
    now_ns = max(network.seen_ns, taken_ns)
    if not network.gave_up and now_ns > _recovered_ns(outage):
        return None
    down_s = outage.seconds(now_ns)
    longest_s = network.settings.longest_flap_s
    is_flap = not network.gave_up and down_s < min(longest_s, network.patience.seconds or longest_s)
    stopped_again = is_flap and not outage.lasts and outage.up_ns <= stopped_ns
    if not (stopped_again or _stopped_at_the_loss(outage, stopped_ns)):
        return None
    return CutOff(outage=outage, ranks=ranks, down_s=down_s, is_flap=is_flap)


def _stopped_at_the_loss(outage: Outage, stopped_ns: int) -> bool:
    """Whether the job stopped because of the link loss.

    A job that continued for longer than ``AFTER_NS``, or stopped after the link was up, stopped for another reason.
    """
    end_ns = min(outage.down_ns + AFTER_NS, (outage.up_ns or LATEST_NS) + CLOCKS_NS)
    return outage.down_ns - BEFORE_NS <= stopped_ns <= end_ns


def _recovered_ns(outage: Outage) -> int:
    """When all connections over a link have recovered after it came up. Until then, a job may continue for a moment and
    stall again, because each connection retransmits separately."""
    return LATEST_NS if outage.lasts else 2 * outage.up_ns - outage.down_ns + GRACE_NS


def _has_root_off_the_network(evidence: HangEvidence, graph: WaitGraph) -> bool:
    """Whether a rank that others wait for is blocked outside of all communication: no link holds it there."""
    roots = [evidence.ranks[rank] for rank in graph.roots() if rank in evidence.ranks]
    return any(of_rank.on_host or of_rank.process is Process.STOPPED for of_rank in roots)


def _has_killed_rank(evidence: HangEvidence) -> bool:
    """Whether a rank was killed by a signal that a lost peer does not cause."""
    dead = [of_rank.ended_by for of_rank in evidence.ranks.values() if of_rank.is_dead]
    return any(ended_by.startswith("SIG") and ended_by not in GIVING_UP for ended_by in dead)
