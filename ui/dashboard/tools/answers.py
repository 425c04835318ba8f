"""Operations about runs, steps, findings and stalls, and the comparison of runs. Each returns plain values for JSON."""

from typing import Any

import numpy as np

from diagnose.compare.comparison import compare_sides
from diagnose.compare.sides import load_side, parse_side
from diagnose.findings import StepWindow
from diagnose.hang.stored import verdict_or_nothing
from diagnose.model.recent_steps import RecentMean
from diagnose.pipeline import diagnose_run
from diagnose.ranges import fold_ranks
from diagnose.report import comparison_object, goodput_object, hang_object, report_object
from diagnose.run_figures import MFU
from diagnose.run_list import SCHEMA, runs_object
from telemetry.errors import UsageError
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LAST_STEP
from ui.dashboard.data import Reads
from ui.dashboard.data.annotations import run_notes, run_tags
from ui.dashboard.data.goodput import ledger_of
from ui.dashboard.data.run_rows import STEP_TIME, TOKENS, recent_means
from ui.dashboard.records import RunFacts, RunSummary
from ui.dashboard.tools.parameters import (
    CompareParameters,
    FindingsParameters,
    GoodputParameters,
    RunParameters,
    RunsParameters,
    StepsParameters,
    WindowParameters,
)
from ui.dashboard.view_state import LARGEST, StepRange, ViewState

NS_PER_S = 1e9


def list_runs(asked: RunsParameters, reads: Reads, reader: Reader) -> dict[str, Any]:
    return runs_object(reader, asked.limit, asked.tag)


def describe_run(asked: RunParameters, reads: Reads, reader: Reader) -> dict[str, Any]:
    facts = reads.facts(view_of(asked))
    run, means = facts.summary, recent_means(reads, facts.summary)
    loss = reads.series(run).get("loss")
    return {
        **head_of(run),
        "attempts": list(reads.attempts(run.run_id)),
        "state": str(run.state),
        "started_ns": run.started_ns,
        "heard_ns": run.heard.heard_ns,
        "num_ranks": facts.topology.world_size,
        "mesh": {str(name): degree for name, degree in facts.topology.mesh},
        "roles": _folded(facts.roles),
        "hosts": [{"host": host, "ranks": ranks} for host, ranks in _folded(facts.hosts).items()],
        "first_step": run.first_step,
        "last_step": run.last_step,
        "num_steps": len(facts.steps.step),
        "step_time_s": _mean(means.get(STEP_TIME), unit=NS_PER_S),
        "mfu": _mean(means.get(MFU)),
        "tokens_per_second": _mean(means.get(TOKENS)),
        "loss": None if loss is None else float(loss.value[-1]),
        "stages": [stage.label for stage in facts.stages],
        "num_spans": facts.num_spans,
        "meta": dict(run.meta),
        "tags": list(run_tags(reads).get(run.run_id, ())),
        "notes": run_notes(run.run_id, reads),
    }


def list_steps(asked: StepsParameters, reads: Reads, reader: Reader) -> dict[str, Any]:
    facts = reads.facts(view_of(asked))
    steps, window = facts.steps, _range(asked)
    rows = np.flatnonzero((steps.step >= window.first) & (steps.step <= window.last))
    shown = rows[-asked.limit :]
    columns = (steps.step, steps.start_ns, steps.duration_ns / NS_PER_S, steps.num_ranks)
    names = ("step", "start_ns", "seconds", "num_ranks")
    return {
        **head_of(facts.summary),
        "num_steps": len(rows),
        "step_time_s": steps.mean_ns(window.first, window.last + 1) / NS_PER_S,
        "steps": [
            dict(zip(names, row, strict=True))
            for row in zip(*(column[shown].tolist() for column in columns), strict=True)
        ],
    }


def list_findings(asked: FindingsParameters, reads: Reads, reader: Reader) -> dict[str, Any]:
    """The same as ``rankscope diagnose --json``, cached until new data or new evidence of a stall arrives."""
    run = reads.newest(view_of(asked))
    window = None
    if asked.first_step is not None or asked.last_step is not None:
        window = StepWindow(first_step=_range(asked).first, last_step=min(_range(asked).last, LAST_STEP))
    version = run.last_step, run.last_ns, run.heard.state, run.heard.has_ended, reads.stored_evidence(run)
    report = reads.kept(
        ("findings", run.run_id, run.attempt, window),
        lambda: diagnose_run(reads.reader_of(run), run.run_id, run.attempt, window),
        version,
    )
    found = report_object(report)
    return {
        **found,
        "num_findings": len(found["findings"]),
        "findings": found["findings"][: asked.limit],
        "marks": found["marks"][-asked.limit :],
        "losses": found["losses"][-asked.limit :],
    }


def explain_stall(asked: RunParameters, reads: Reads, reader: Reader) -> dict[str, Any]:
    """The same as ``rankscope diagnose hang --json``."""
    run = reads.newest(view_of(asked))
    return hang_object(verdict_or_nothing(reader, run.run_id, run.attempt))


def report_goodput(asked: GoodputParameters, reads: Reads, reader: Reader) -> dict[str, Any]:
    """The same as ``rankscope goodput --json``, with the last ``limit`` incidents."""
    found = goodput_object(ledger_of(reads.newest(ViewState(run=asked.run)).run_id, reads))
    incidents = found["incidents"]
    return {**found, "num_incidents": len(incidents), "incidents": incidents[-asked.limit :]}


def compare_runs(asked: CompareParameters, reads: Reads, reader: Reader) -> dict[str, Any]:
    """The same as ``rankscope compare --json``, with the first ``limit`` ranks."""
    sides = [load_side(reader, parse_side(name)) for name in (asked.a, asked.b)]
    found = comparison_object(compare_sides(*sides, least_change=asked.least_change / 100))
    ranks = found["ranks"]
    return {**found, "num_ranks": len(ranks), "ranks": ranks[: asked.limit]}


def view_of(asked: RunParameters) -> ViewState:
    """The view of the run and attempt that a call selects."""
    return ViewState(run=asked.run, attempt=asked.attempt)


def window_of(asked: WindowParameters) -> StepRange | None:
    """The chosen steps. None for the default."""
    return None if asked.first_step is None and asked.last_step is None else _range(asked)


def facts_with_steps(state: ViewState, reads: Reads) -> RunFacts:
    """Facts about the attempt of a view.

    Raises:
        UsageError: the attempt has no completed step.
    """
    facts = reads.facts(state)
    if not len(facts.steps.step):
        raise UsageError(
            f"run {facts.summary.run_id} has no completed step", hint="retry when the first step has ended"
        )
    return facts


def _range(asked: WindowParameters) -> StepRange:
    return StepRange(asked.first_step or 0, LARGEST if asked.last_step is None else asked.last_step)


def head_of(run: RunSummary) -> dict[str, Any]:
    """The fields with which results about an attempt begin."""
    return {"schema": SCHEMA, "run": run.run_id, "attempt": run.attempt}


def _folded(names: tuple[str, ...]) -> dict[str, str]:
    """Name -> its ranks, in the order of their first rank. ``names``: the name of each rank."""
    ranks: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        ranks.setdefault(name, []).append(rank)
    return {name: fold_ranks(of_name) for name, of_name in ranks.items()}


def _mean(known: RecentMean | None, *, unit: float = 1.0) -> dict[str, Any] | None:
    if known is None:
        return None
    return {"mean": known.mean / unit, "first_step": known.first_step, "last_step": known.last_step}
