"""`rankscope doctor --pairs`: this node's part in the paired test, and its verdict."""

from collections.abc import Iterator

from diagnose.nodecheck.pairs.judge import cause_of
from diagnose.nodecheck.pairs.paired_test import PairedTest, RoundBegun, run_paired_test
from diagnose.nodecheck.pairs.records import BadNode, PairedVerdict
from diagnose.nodecheck.pairs.wire import verdict_object
from telemetry.printable import printable
from ui.cli.output import out, progress


def pair_this_node(test: PairedTest, *, json: bool) -> bool:
    """Take part, print the verdict; whether something is amiss."""
    verdict = _take_part(test)
    if json:
        out.print_json(data={"schema": 1} | verdict_object(verdict))
    else:
        out.print("\n".join(_lines(verdict)), markup=False, highlight=False)
    return bool(verdict.is_amiss)


def _take_part(test: PairedTest) -> PairedVerdict:
    with progress.status(f"waiting for {test.rendezvous.nodes} nodes at {test.rendezvous.endpoint}") as status:
        for told in run_paired_test(test):
            if isinstance(told, RoundBegun):
                status.update(f"round {told.round + 1}: {' '.join(f'{a}-{b}' for a, b in told.pairs)}")
            else:
                return told
    raise AssertionError("the test ended without a verdict")


def _lines(verdict: PairedVerdict) -> Iterator[str]:
    for bad in verdict.judgement.bad:
        yield f"{_named(bad.node, verdict)} is bad: {_how(bad)}; {cause_of(bad, verdict)}"
    if verdict.absent:
        yield f"did not come: node {_listed(verdict.absent)}"
    if verdict.judgement.undecided:
        yield f"not to be told, no partner of theirs did well elsewhere: node {_listed(verdict.judgement.undecided)}"
    elif not verdict.judgement.bad and not verdict.absent:
        yield "no bad node"
    if verdict.is_insufficient:
        yield "fewer than three nodes: a slow or failed pair does not tell which of the two it was"
    usual = verdict.judgement.usual_s
    speed = "" if usual is None else f"; usual iteration {usual * 1e3:.3g} ms"
    yield f"{len(verdict.hosts)} nodes, {verdict.num_rounds} rounds{speed}"


def _named(node: int, verdict: PairedVerdict) -> str:
    return f"node {node} ({printable(verdict.hosts[node])})"


def _listed(nodes: tuple[int, ...]) -> str:
    return ", ".join(map(str, nodes))


def _how(bad: BadNode) -> str:
    return "failed with every partner" if bad.failed else f"{bad.ratio:.1f}x the usual time with every partner"
