"""A verdict as JSON, between nodes and for ``--json``."""

from dataclasses import asdict
from typing import Any

from diagnose.nodecheck.pairs.judge import cause_of
from diagnose.nodecheck.pairs.records import BadNode, Judgement, PairedVerdict, PairRun


def verdict_object(verdict: PairedVerdict) -> dict[str, Any]:
    """What :func:`read_verdict` reads, and what people want beside it."""
    judgement = verdict.judgement
    return {
        "hosts": list(verdict.hosts),
        "rounds": verdict.num_rounds,
        "bad": [asdict(bad) | {"cause": cause_of(bad, verdict)} for bad in judgement.bad],
        "undecided": list(judgement.undecided),
        "absent": list(verdict.absent),
        "insufficient": verdict.is_insufficient,
        "usual_s": judgement.usual_s,
        "runs": [asdict(run) for run in verdict.runs],
    }


def read_verdict(told: dict[str, Any]) -> PairedVerdict:
    """The verdict that was told."""
    return PairedVerdict(
        hosts=tuple(told["hosts"]),
        runs=tuple(_run(run) for run in told["runs"]),
        judgement=Judgement(
            bad=tuple(BadNode(node=bad["node"], failed=bad["failed"], ratio=bad["ratio"]) for bad in told["bad"]),
            undecided=tuple(told["undecided"]),
            usual_s=told["usual_s"],
        ),
    )


def _run(told: dict[str, Any]) -> PairRun:
    first, second = told["members"]
    return PairRun(**{**told, "members": (first, second), "own_s": tuple(told["own_s"]) if told["own_s"] else None})
