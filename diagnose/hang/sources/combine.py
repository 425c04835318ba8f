"""Combine several sources of evidence of one stall: one record for each rank, one verdict, and the contradictions.

    flight recorder   ranks 0-6                    counts of ranks 0-6: every group of the rank
    log               ranks 0-7    -- combine -->  counts of rank 7; ends and faults of all
    stacks            ranks 0-7                    frames of all

The first source that shows the groups of a rank is used for its counts. Groups are the same if torch gives them one
name, or NCCL one hash. Sources contradict each other as ``contradictions.py`` and ``launches.py`` describe, if each of
them alone names other ranks, or if a rank is known in part only and the ranks of a source wait for other ranks. A rank
is not named if a contradiction is about it. No rank is named if two sources are of different moments. Sizes and types
are compared within one source only: sources write them in different forms.

A false source that agrees with all others cannot be recognised. So the first line says if only one source names a
rank.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from diagnose.findings import Kind
from diagnose.hang.evidence import (
    Contradiction,
    Group,
    GroupTable,
    HangEvidence,
    Pending,
    Process,
    RankEvidence,
    Source,
)
from diagnose.hang.job_size import plausible_size
from diagnose.hang.sources.contradictions import of_one_rank, on_members, sources_apart
from diagnose.hang.sources.from_communicators import RAS
from diagnose.hang.sources.launches import between_ras_and_torch
from diagnose.hang.verdict import HangVerdict, State, judge
from diagnose.hang.waits import wait_graph
from diagnose.ranges import fold_ranks

MAX_CONTRADICTIONS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The evidence of one source."""

    name: str
    """For people: ``log``, ``flight recorder``."""
    evidence: HangEvidence


@dataclass(slots=True, eq=False)
class _Groups(GroupTable):
    by_uid: dict[str, list[int]] = field(default_factory=dict)

    def of(self, group: Group, rank: int) -> int:
        """Index of the group: one of the same name that holds the rank, or a new one."""
        for index in self.by_uid.get(group.uid, []) if group.uid else []:
            if rank in self.groups[index].members and set(group.members) <= set(self.groups[index].members):
                return index
        index = self.add(group, (f"{group.uid} {group.name}", group.members))
        if index not in self.by_uid.setdefault(group.uid, []):
            self.by_uid[group.uid].append(index)
        return index


def judge_together(found: Sequence[Found]) -> HangVerdict:
    """The verdict on all sources. If they name different ranks, no rank is named."""
    verdicts = [(one.name, judge(one.evidence)) for one in found]
    says = [verdict.headline if len(found) > 1 else "" for _, verdict in verdicts]
    sources = tuple(
        Source(name=one.name, ranks=tuple(sorted(one.evidence.ranks)), says=text)
        for one, text in zip(found, says, strict=True)
    )
    together = combine(found)
    verdict = judge(replace(together, sources=sources))
    contradictions = (*_disagreements(verdicts), *together.contradictions, *_other_leads(found, verdict))
    evidence = replace(verdict.evidence, contradictions=contradictions[:MAX_CONTRADICTIONS])
    verdict = replace(verdict, evidence=evidence)
    apart = sources_apart(contradictions)
    if apart is not None:
        return _of_different_moments(verdict, apart)
    disputed = sorted({rank for one in contradictions for rank in one.ranks} & set(verdict.initiating))
    return _disputed(verdict, disputed) if disputed else _with_sole_source(verdict, verdicts)


def _with_sole_source(verdict: HangVerdict, verdicts: Sequence[tuple[str, HangVerdict]]) -> HangVerdict:
    """The verdict with the name of the source, if only one of several names the ranks when it is alone."""
    naming = [name for name, alone in verdicts if set(alone.initiating) & set(verdict.initiating)]
    if len(verdicts) == 1 or len(naming) != 1:
        return verdict
    name = "name" if naming[0].endswith("s") else "names"
    them = "them" if len(verdict.initiating) > 1 else "it"
    return replace(verdict, headline=f"{verdict.headline}; only the {naming[0]} {name} {them}")


def _of_different_moments(verdict: HangVerdict, sources: tuple[str, str]) -> HangVerdict:
    named = " and the ".join(sources)
    return _undecided(
        verdict,
        f"undecided: the {named} do not show the same moment of the same job",
        "take new evidence of all ranks at one time (--dumps, --stacks, --logs). Or leave out the older one of the two",
    )


def _disputed(verdict: HangVerdict, ranks: Sequence[int]) -> HangVerdict:
    named = _named(set(ranks))
    return _undecided(
        verdict,
        f"undecided: the sources contradict each other on {named}",
        f"take new evidence of {named} at one time: a flight-recorder dump (--dumps) and a stack (--stacks)",
    )


def _undecided(verdict: HangVerdict, headline: str, next_step: str) -> HangVerdict:
    states = {rank: State.UNKNOWN if rank in verdict.initiating else state for rank, state in verdict.states.items()}
    return replace(
        verdict,
        kind=Kind.INSUFFICIENT_EVIDENCE,
        initiating=(),
        states=states,
        headline=headline,
        next_step=next_step,
        confidence=round(verdict.confidence / 2, 2),
    )


def _disagreements(verdicts: Sequence[tuple[str, HangVerdict]]) -> Iterator[Contradiction]:
    """Contradictions between two sources each of which alone names ranks that the other does not name."""
    naming = [(name, set(verdict.initiating)) for name, verdict in verdicts if verdict.initiating]
    for at, (name, ranks) in enumerate(naming):
        for other, others in naming[at + 1 :]:
            if ranks - others and others - ranks:
                text = f"the {name} alone names {_named(ranks)}, the {other} alone names {_named(others)}"
                yield Contradiction(ranks=tuple(sorted(ranks ^ others)), text=text)


def _other_leads(found: Sequence[Found], verdict: HangVerdict) -> Iterator[Contradiction]:
    """Sources in which ranks wait for other ranks than the named ones, if these are known in part only. Not for a wrong
    collective or a dead rank: the others may wait for victims."""
    named, ranks = set(verdict.initiating), verdict.evidence.ranks
    are_partial = all(rank in ranks and ranks[rank].partial for rank in named)
    if len(found) == 1 or not named or not are_partial or verdict.kind is not Kind.HUNG_COLLECTIVE:
        return
    for one in found:
        awaited = wait_graph(one.evidence).roots() & one.evidence.ranks.keys()
        if awaited and not awaited & named:
            text = f"in the {one.name}, ranks wait for {_named(awaited)}, and none is known to wait for {_named(named)}"
            yield Contradiction(ranks=tuple(sorted(named)), text=text)


def _named(ranks: set[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {fold_ranks(ranks)}"


def combine(found: Sequence[Found]) -> HangEvidence:
    """The evidence of all sources, with one record for each rank. ``found``: the most precise source first."""
    if len(found) == 1:
        return found[0].evidence
    groups = _Groups()
    ranks: dict[int, tuple[str, RankEvidence]] = {}
    contradictions = list(_between_sources(found))
    signing = next((one for one in found if _has_signatures(one.evidence)), None)
    records = [
        (one.name, _with_groups(of_rank if one is signing else _unsigned(of_rank), one.evidence, groups))
        for one in found
        for of_rank in one.evidence.ranks.values()
    ]
    mixed = {op.group for _, of_rank in records for op in of_rank.pending if op.is_transfer}
    for name, of_rank in records:
        known = ranks.get(of_rank.rank)
        if known is not None:
            contradictions += of_one_rank(known, (name, of_rank), groups.groups, mixed)
        ranks[of_rank.rank] = (name, of_rank) if known is None else (known[0], _merged(known[1], of_rank))
    all_evidence = [one.evidence for one in found]
    first = all_evidence[0]
    sure = [evidence.world_size for evidence in all_evidence if evidence.world_size and not evidence.guessed_size]
    stated = max(sure or [evidence.world_size for evidence in all_evidence])
    size = plausible_size(max(stated, 1 + max(ranks, default=-1)), len(ranks))
    return replace(
        first,
        world_size=size,
        guessed_size=not sure,
        groups=tuple(_complete(group, size) for group in groups.groups),
        ranks={rank: _settled(of_rank) for rank, (_, of_rank) in sorted(ranks.items())},
        has_ended=any(evidence.has_ended for evidence in all_evidence),
        notes=tuple(note for evidence in all_evidence for note in evidence.notes),
        contradictions=tuple(contradictions),
    )


def _between_sources(found: Sequence[Found]) -> Iterator[Contradiction]:
    """Contradictions on members of groups, and on the progress of ranks within them."""
    named = [(one.name, one.evidence) for one in found]
    shown = {name: {rank: _groups_of(of_rank) for rank, of_rank in evidence.ranks.items()} for name, evidence in named}
    yield from on_members(named, shown)
    for ras in named:
        for torch in named if ras[0] == RAS else ():
            if torch is not ras:
                yield from between_ras_and_torch(torch, ras)


def _has_signatures(evidence: HangEvidence) -> bool:
    return any(op.signature for of_rank in evidence.ranks.values() for op in of_rank.pending)


def _unsigned(of_rank: RankEvidence) -> RankEvidence:
    """The record without signatures, because sources write these in different forms."""
    pending = tuple(replace(op, signature="", usual="") for op in of_rank.pending)
    return replace(of_rank, pending=pending, ended={})


def _complete(group: Group, size: int) -> Group:
    """The default group has all ranks of the job, also those that another source shows."""
    is_all = group.complete and group.uid == "0" and group.members == tuple(range(len(group.members)))
    return replace(group, members=tuple(range(size))) if is_all else group


def _with_groups(of_rank: RankEvidence, evidence: HangEvidence, groups: _Groups) -> RankEvidence:
    """The record with indices of the common groups."""
    index = {at: groups.of(evidence.groups[at], of_rank.rank) for at in _groups_of(of_rank)}
    return replace(
        of_rank,
        fronts={index[at]: front for at, front in of_rank.fronts.items()},
        pending=tuple(replace(op, group=index[op.group]) for op in of_rank.pending),
        ended={index[at]: ended for at, ended in of_rank.ended.items()},
    )


def _groups_of(of_rank: RankEvidence) -> set[int]:
    return {*of_rank.fronts, *of_rank.ended, *(op.group for op in of_rank.pending)}


def _merged(known: RankEvidence, more: RankEvidence) -> RankEvidence:
    """The records of two sources as one. ``known`` comes from the more precise source."""
    fronts = dict(known.fronts)
    pending: tuple[Pending, ...] = known.pending
    if known.partial:
        fronts = {**more.fronts, **known.fronts}
        pending = (*known.pending, *(op for op in more.pending if op.group not in known.fronts))
    ended = more if known.process is Process.UNKNOWN else known
    return replace(
        known,
        host=known.host or more.host,
        process=ended.process,
        died_ns=ended.died_ns,
        ended_by=ended.ended_by,
        fronts=fronts,
        pending=pending,
        on_host=known.on_host if known.on_host is not None or not known.partial else more.on_host,
        stack=known.stack or more.stack,
        log=known.log or more.log,
        gave_no_answer=known.gave_no_answer or more.gave_no_answer,
        partial=known.partial and more.partial,
    )


def _settled(of_rank: RankEvidence) -> RankEvidence:
    """The record, with ``on_host`` unknown if the rank is known in part and an operation is pending.

    The host of an NCCL rank runs ahead of its device, so it may be in its own code while an operation is pending.
    """
    return replace(of_rank, on_host=None) if of_rank.partial and of_rank.pending else of_rank
