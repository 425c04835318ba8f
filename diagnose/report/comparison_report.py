"""A comparison as text for the terminal, and as one JSON object, schema 1."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from diagnose.compare.records import Change, Comparison, RankChange, SideFacts, StageChange, StepChange, Verdict
from diagnose.ranges import list_some, name_some
from diagnose.report.as_json import SCHEMA
from diagnose.report.as_text import line

COLUMNS = ("stage", "A", "B", "change", "of step", "verdict", "compared time")
NARROW = COLUMNS[:-1]
"""The columns that a table in a terminal has."""
UNKNOWN = "-"
MOST_NAMED = 3
MOST_RANKS = 20
"""Number of ranks in the text. JSON has all of them."""
STYLES = {Verdict.SLOWER: "bold red", Verdict.FASTER: "bold green", Verdict.NO_DIFFERENCE: ""}


def comparison_object(found: Comparison) -> dict[str, Any]:
    """The comparison as plain values. Ratios are B / A. Shares are parts of 1. None: not known."""
    return {
        "schema": SCHEMA,
        "verdict": str(found.verdict),
        "summary": headline(found),
        "a": _side_object(found.a),
        "b": _side_object(found.b),
        "least_change": found.least_change,
        "tests": found.num_tests,
        "step": _step_object(found.step),
        "typical_step": _step_object(found.typical),
        "stages": [_stage_object(each) for each in found.stages],
        "ranks": [_rank_object(each) for each in found.ranks],
        "notes": list(found.notes),
    }


def _side_object(side: SideFacts) -> dict[str, Any]:
    return {
        "name": side.label,
        "run": side.run_id,
        "attempt": side.attempt,
        "first_step": side.window.first_step,
        "last_step": side.window.last_step,
        "num_steps": side.num_steps,
        "left_out": side.left_out,
        "ranks": list(side.ranks) or None,
        "mesh": side.mesh,
    }


def _step_object(step: StepChange | None) -> dict[str, Any] | None:
    return None if step is None else {"a_s": step.a_s, "b_s": step.b_s, **_change_object(step.change)}


def _change_object(change: Change | None) -> dict[str, Any]:
    if change is None:
        return {**dict.fromkeys(("ratio", "low", "high", "detectable", "verdict"))}
    return {
        "ratio": change.ratio,
        "low": change.low,
        "high": change.high,
        "detectable": change.detectable,
        "verdict": str(change.verdict),
    }


def _stage_object(each: StageChange) -> dict[str, Any]:
    return {
        "stage": each.stage.label,
        "role": each.role,
        "compared": None if each.basis is None else str(each.basis),
        "a_s": each.a_s,
        "b_s": each.b_s,
        "a_share_of_steps": each.a_share,
        "b_share_of_steps": each.b_share,
        **_change_object(each.change),
        "share_of_step": each.share_of_step,
    }


def _rank_object(each: RankChange) -> dict[str, Any]:
    return {
        "rank": each.rank,
        "role": each.role,
        "host_a": each.host_a,
        "host_b": each.host_b,
        "stages": {stage.label: ratio for stage, ratio in each.stages.items()},
        "share_of_step": each.share_of_step,
        "verdict": str(each.verdict),
    }


def headline(found: Comparison) -> str:
    """The result in one or two sentences: whether B is slower, by how much, and where."""
    where = list(parts(found))
    if found.verdict is Verdict.NO_DIFFERENCE:
        differing = f". Parts differ: {'; '.join(where)}" if where else ""
        return f"No difference beyond noise{_seen(found)}{differing}"
    because = f": {'; '.join(where)}" if where else ""
    if found.step is None or found.typical is None:
        return f"B is {found.verdict} than A{because}"
    return f"B is {_by(found.step, found.typical, found.verdict)}{because}"


def _by(step: StepChange, typical: StepChange, verdict: Verdict) -> str:
    """How B differs from A: ``4.9% slower than A. A step takes 1.309 s instead of 1.248 s (95% interval: ...)``."""
    shown = step if step.change.verdict is verdict else typical  # which at least confirms the verdict
    name = "a step" if shown is step else "a typical step"
    return (
        f"{abs(shown.change.ratio - 1):.1%} {verdict} than A. {name.capitalize()} takes {shown.b_s:.3f} s instead of "
        f"{shown.a_s:.3f} s (95% interval: {interval(shown.change)})"
    )


def _seen(found: Comparison) -> str:
    if found.step is None or found.typical is None:
        return ""
    least = min(found.step.change.detectable, found.typical.change.detectable)
    times = f": a step takes {found.step.b_s:.3f} s in B and {found.step.a_s:.3f} s in A"
    if least > 1:
        return f"{times}. The steps vary too much to see even a change of 100%"
    return f"{times}. A change of {least:.1%} would be a difference"


def parts(found: Comparison) -> Iterator[str]:
    """The stages and ranks that differ, in words: ranks first, because one rank can slow all others."""
    for verdict in (Verdict.SLOWER, Verdict.FASTER):
        yield from _ranks_in_words(found.ranks_that_are(verdict), verdict)
        stages = found.stages_that_are(verdict)
        named = [f"{each.name} takes {amount(each.change)} on all ranks" for each in stages if each.change is not None]
        if named:
            yield list_some(named, MOST_NAMED)


def _ranks_in_words(ranks: Sequence[RankChange], verdict: Verdict) -> Iterator[str]:
    """``rank 5 (host gpu-000) is up to 10.2% slower than in A, beyond the other ranks (backward-compute)``."""
    if not ranks:
        return
    numbers = [each.rank for each in ranks]
    hosts = list_some(list(dict.fromkeys(each.host_b or "unknown" for each in ranks)), MOST_NAMED)
    worst = max(ranks, key=lambda each: abs(each.stages[each.worst] - 1))
    most = abs(worst.stages[worst.worst] - 1)
    subject = f"rank {numbers[0]}" if len(ranks) == 1 else f"ranks {name_some(numbers)}"
    host = "host" if len({each.host_b for each in ranks}) == 1 else "hosts"
    up_to = "" if len(ranks) == 1 and len(worst.stages) == 1 else "up to "
    yield (
        f"{subject} ({host} {hosts}) {'is' if len(ranks) == 1 else 'are'} {up_to}{most:.1%} {verdict} in "
        f"{worst.worst.label}, beyond the change of the other ranks"
    )


def amount(change: Change | None) -> str:
    """A change of a time in words, from A to B: ``3.0% longer``, ``1.2% less time``, ``2.10x as long``."""
    if change is None:
        return UNKNOWN
    if change.ratio >= 2:
        return f"{change.ratio:.2f}x as long"
    return f"{change.ratio - 1:.1%} longer" if change.ratio >= 1 else f"{1 - change.ratio:.1%} less time"


def interval(change: Change) -> str:
    """The interval of a change, which contains the true change with 95% probability: ``+2.2% to +3.8%``."""
    return f"{signed(change.low - 1)} to {signed(change.high - 1)}"


def seconds(value: float | None) -> str:
    """A time in seconds as text: ``1.250 s``, ``40.10 ms``, ``12.0 µs``."""
    if value is None:
        return UNKNOWN
    if value >= 1:
        return f"{value:.3f} s"
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.1f} µs"


def comparison_cells(found: Comparison) -> list[tuple[str, ...]]:
    """The rows of the table, in the order of ``COLUMNS``: step times, then stages."""
    rows: list[tuple[str, ...]] = []
    for name, step in (("step, mean", found.step), ("step, typical", found.typical)):
        if step is not None:
            times = seconds(step.a_s), seconds(step.b_s), with_spread(step.change)
            rows.append((name, *times, "", verdict_of(step.change), "wall time"))
    for each in found.stages:
        times = seconds(each.a_s), seconds(each.b_s), with_spread(each.change)
        share = signed(each.share_of_step, 2) if each.change else UNKNOWN
        verdict = verdict_of(each.change) if each.change else _why_not(each)
        rows.append((each.name, *times, share, verdict, UNKNOWN if each.basis is None else str(each.basis)))
    return rows


def signed(share: float, digits: int = 1) -> str:
    """A share as a percentage with its sign: ``+3.0%``, ``-1.2%``, ``0.0%``."""
    rounded = round(share, digits + 2)
    return f"{rounded:+.{digits}%}" if rounded else f"{0:.{digits}%}"


def with_spread(change: Change | None) -> str:
    """``+3.0% ±0.8%``: the change, and half of its 95% interval."""
    return UNKNOWN if change is None else f"{signed(change.ratio - 1)} ±{(change.high - change.low) / 2:.1%}"


def verdict_of(change: Change) -> str:
    """The verdict as text. Empty if there is no difference."""
    return "" if change.verdict is Verdict.NO_DIFFERENCE else str(change.verdict)


def _why_not(each: StageChange) -> str:
    if each.a_s is None or each.b_s is None:
        return "only in B" if each.a_s is None else "only in A"
    return "measured in different ways" if each.basis is None else "too few steps"


def comparison_text(found: Comparison) -> RenderableType:
    """The comparison as a text for rich."""
    sides = [line(text, style="dim") for text in comparison_sides(found)]
    legend = (
        "±: half of the 95% interval. of step: added time, as a share of a step of A. "
        f"{found.num_tests:,} tests of stages and ranks. Changes below {found.least_change:.1%} are no difference. "
        "The times of stages include neither waiting nor the ranks that differ"
    )
    return Group(
        line(headline(found), style=STYLES[found.verdict] or "bold"),
        *sides,
        Text(),
        _stages_table(found),
        *_ranks_text(found),
        Text(),
        *(line(f"note: {note}", style="dim") for note in found.notes),
        line(legend, style="dim"),
    )


def _stages_table(found: Comparison) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for name in NARROW:
        table.add_column(name, justify="left" if name in ("stage", "verdict") else "right", no_wrap=True)
    for row in comparison_cells(found):
        *cells, verdict = row[: len(NARROW)]
        style = next((STYLES[each] for each in Verdict if verdict == each), "")
        table.add_row(*map(line, cells), line(verdict, style=style))
    return table


def comparison_sides(found: Comparison) -> list[str]:
    """What A and B are, in words."""
    return [f"{name}: {_side_text(side)}" for name, side in (("A", found.a), ("B", found.b))]


def _side_text(side: SideFacts) -> str:
    ranks = f", ranks {name_some(side.ranks)}" if side.ranks else ""
    left_out = f", without {side.left_out} settling steps or steps with a profile" if side.left_out else ""
    return f"{side.label}, {side.mesh}, {side.num_steps} steps: {side.window.in_words}{left_out}{ranks}"


def _ranks_text(found: Comparison) -> Iterator[RenderableType]:
    if not found.ranks:
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("rank", "host", "beyond the other ranks", "of step", "verdict"):
        table.add_column(name)
    for each in found.ranks[:MOST_RANKS]:
        ratios = ", ".join(f"{stage.label} {ratio - 1:+.1%}" for stage, ratio in each.stages.items())
        cells = (str(each.rank), each.hosts, ratios, signed(each.share_of_step, 2), str(each.verdict))
        table.add_row(*map(line, cells))
    yield Text()
    yield table
    if len(found.ranks) > MOST_RANKS:
        yield line(f"{len(found.ranks) - MOST_RANKS:,} more ranks: use --json", style="dim")
