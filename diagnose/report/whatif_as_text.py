"""A what-if analysis for people: what it costs, where it sits, what putting it right would gain."""

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from diagnose.report.as_text import report_text
from diagnose.report.terminal import line
from diagnose.whatif.analysis import WhatIf
from diagnose.whatif.conclude import Conclusion

MOST = 8
"""Rows of a table: the worst come first."""


def whatif_text(conclusion: Conclusion) -> RenderableType:
    """The analysis as something rich prints."""
    return Group(*_parts(conclusion))


def _parts(conclusion: Conclusion) -> Iterator[RenderableType]:
    figures = conclusion.figures
    if figures is not None and conclusion.replay_error is not None and conclusion.holds:
        yield _headline(conclusion.step_s, figures, conclusion.replay_error)
        yield Text()
        yield _shares(figures)
        if told := _explained(figures):
            yield line(told)
        yield Text()
    if conclusion.fixes:
        yield _gains(conclusion)
        yield Text()
    yield report_text(conclusion.report)


def _headline(step_s: float, figures: WhatIf, error: float) -> Text:
    return line(
        f"a step takes {step_s:.3f} s: {figures.slowdown:.3f}x as slow as with all workers alike, "
        f"{figures.waste:.1%} of the time is lost; "
        f"the replay misses the measured steps by {error:.1%}",
        style="bold",
    )


def _shares(figures: WhatIf) -> Table:
    """Times the ideal step that a step takes with one part alone as it was."""
    table = Table(title="ideal step with one part as it was, times ideal", title_justify="left", box=None)
    for name in ("pipeline rank, replica", "", "stage", ""):
        table.add_column(name, header_style="bold")
    places = [
        *((f"pp{pp}", ratio) for pp, ratio in enumerate(figures.by_pp.tolist())),
        *((figures.topology.replica(dp), ratio) for dp, ratio in enumerate(figures.by_dp.tolist())),
    ]
    stages = sorted(figures.by_stage.items(), key=lambda item: -item[1])[:MOST]
    places = sorted(places, key=lambda item: -item[1])[:MOST]
    for row in range(max(len(places), len(stages))):
        left = places[row] if row < len(places) else ("", np.nan)
        right = stages[row] if row < len(stages) else ("", np.nan)
        table.add_row(left[0], _ratio(left[1]), right[0], _ratio(right[1]))
    return table


def _explained(figures: WhatIf) -> str:
    """How much of the slowdown is explained by a few; nothing where nothing is slow."""
    if figures.m_w is None or figures.m_s is None:
        return ""
    return (
        f"of the slowdown, the worst 3% of workers explain {figures.m_w:.0%}, the last pipeline stage {figures.m_s:.0%}"
    )


def _ratio(ratio: float) -> str:
    return "" if np.isnan(ratio) else f"{ratio:.3f}x"


def _gains(conclusion: Conclusion) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("what if", "seconds saved", "of step time"):
        table.add_column(name, justify="left" if name == "what if" else "right")
    for fix in conclusion.fixes:
        told = (f"{fix.saved_s:.2f}", f"{fix.share:.1%}") if fix.gains else ("none", "")
        table.add_row(fix.change, *told)
    return table
