"""The histogram of the values of ranks, with p50, p95, the highest value and the suspects.

Its bars are plain elements of the page, which are drawn faster than a figure.

      |    :      :               |  p50 (solid line), p95 (dotted line)
      |  # :      :               |
      |  ####### #:             # |  a bar for the ranks of each bin; distant values share a bar
      +---------------------//----+  the axis is broken before it
                                ▲    suspects
      0.97x            1.01x // 1.38x
"""

import re
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
from dash import html
from dash.development.base_component import Component

from ui.dashboard.figures.distribution import Distribution
from ui.dashboard.figures.metrics import READINGS
from ui.dashboard.records import Floats, RunFacts
from ui.dashboard.view_state import Metric
from ui.dashboard.wording import count, ranks_text, unbroken

MAX_MARKS = 32
"""Largest number of suspects with a mark of their own. The text below the histogram names all suspects."""
FAR_PERCENT, SPACE_PERCENT = 4.0, 5.0
"""Width of a bar of distant values, and of the space beside it, in which the axis is broken."""
BREAK = "//"
MAX_DIGITS = 9
"""The largest number of digits behind the decimal point."""
Form = Callable[[float], str]


def histogram(found: Distribution, metric: Metric, facts: RunFacts) -> Component:
    """The histogram with its texts. ``found`` is in the units of ``metric``."""
    form = _form(found, metric)
    ends, label = _ends(found, form), f"histogram of {_extent(found, form)}"
    plot = html.Div(
        [*_bars(found, form), *_breaks(found), *_percentiles(found), *_triangles(found)],
        className="histogram",
        role="img",
        **{"aria-label": label},
    )
    p50, p95 = unbroken(f"p50 {form(found.p50)} (solid)"), unbroken(f"p95 {form(found.p95)} (dotted)")
    highest = f"{unbroken(f'max {form(found.highest)}')}: {_highest(found, facts, form)}"
    lines = [f"{p50}, {p95}", highest, *_suspects(found, form), *_broken(found)]
    return html.Div(
        [plot, html.Div([html.Span(text) for text in ends], className="ends"), *[html.Div(line) for line in lines]],
        className="histogram-panel",
    )


def _form(found: Distribution, metric: Metric) -> Form:
    """The format of the metric, with more digits if the labels of the axis would be equal otherwise."""
    usual = "{:.3f}x" if metric is Metric.RATIO else READINGS[metric].cell
    labelled = np.unique(found.edges[[0, found.is_first_far, -1 - found.is_last_far, -1]]).tolist()
    more = [re.sub(r"\.\df", f".{digits}f", usual) for digits in range(int(usual[3]) + 1, MAX_DIGITS + 1)]
    forms = [] if found.is_constant else [usual, *more]
    return next((text.format for text in forms if len({*map(text.format, labelled)}) == len(labelled)), usual.format)


def _ends(found: Distribution, form: Form) -> list[str]:
    """The values at both ends of the axis, and between them the height of the highest bar. Where the axis is broken,
    also the value at the break. Equal values have no axis."""
    if found.is_constant:
        return [_extent(found, form)]
    lowest, inner_low, *_, inner_high, highest = (form(edge) for edge in found.edges[[0, 1, -2, -1]])
    return [
        f"{lowest} {BREAK} {inner_low}" if found.is_first_far else lowest,
        f"highest bar: {count(int(found.counts.max()), 'rank')}",
        f"{inner_high} {BREAK} {highest}" if found.is_last_far else highest,
    ]


def _extent(found: Distribution, form: Form) -> str:
    """The number of ranks and the range of their values: ``8 ranks from 0.95x to 1.52x``, ``8 ranks, all 1.00x``."""
    ranks, low = count(found.num_ranks, "rank"), form(found.edges[0])
    return f"{ranks}, all {low}" if found.is_constant else f"{ranks} from {low} to {form(found.edges[-1])}"


def _highest(found: Distribution, facts: RunFacts, form: Form) -> str:
    """The ranks in the last bar whose value, as it is displayed, is the highest one."""
    last = zip(found.last_ranks.tolist(), found.last_values.tolist(), strict=True)
    ranks = [rank for rank, value in last if form(value) == form(found.highest)]
    if len(ranks) == 1:
        return facts.describe(ranks[0])
    return "all ranks" if len(ranks) == found.num_ranks else f"ranks {ranks_text(ranks, 6)}"


def _broken(found: Distribution) -> list[str]:
    """An explanation of the break."""
    return [f"{BREAK} break of the axis: distant values share one bar"] * (found.is_first_far or found.is_last_far)


def _bounds(found: Distribution) -> Floats:
    """The left and the right edge of each bin in percent of the width, [bins, 2]."""
    first = FAR_PERCENT + SPACE_PERCENT if found.is_first_far else 0.0
    last = 100.0 - (FAR_PERCENT + SPACE_PERCENT if found.is_last_far else 0.0)
    inner = np.linspace(first, last, len(found.counts) - found.is_first_far - found.is_last_far + 1)
    below = [[0.0, FAR_PERCENT]] * found.is_first_far
    above = [[100.0 - FAR_PERCENT, 100.0]] * found.is_last_far
    return np.array([*below, *pairwise(inner), *above])


def _at(found: Distribution, value: float) -> str:
    """The place of a value, linear within its bin."""
    bin_at = int(np.clip(np.searchsorted(found.edges, value, side="right") - 1, 0, len(found.counts) - 1))
    place = np.interp(value, found.edges[bin_at : bin_at + 2], _bounds(found)[bin_at])
    return f"{place:.4g}%"


def _bars(found: Distribution, form: Form) -> Iterable[Component]:
    edges, most = found.edges.tolist(), int(found.counts.max())
    for at, ((left, right), number) in enumerate(zip(_bounds(found), found.counts.tolist(), strict=True)):
        style = {"left": f"{left:.4g}%", "width": f"{right - left:.4g}%", "height": f"{100 * number / most:.4g}%"}
        title = f"{form(edges[at])} to {form(edges[at + 1])}: {count(number, 'rank')}"
        if number:
            yield html.Span(className="bar", style=style, title=title)


def _breaks(found: Distribution) -> Iterable[Component]:
    place = FAR_PERCENT + SPACE_PERCENT / 2
    for is_far, left in ((found.is_first_far, place), (found.is_last_far, 100.0 - place)):
        if is_far:
            style = {"left": f"{left:.4g}%"}
            yield html.Span(BREAK, className="axis-break", style=style, title="the axis is broken here")


def _percentiles(found: Distribution) -> Iterable[Component]:
    for name, value in (("p50", found.p50), ("p95", found.p95)):
        yield html.Span(className=f"percentile {name}", style={"left": _at(found, value)}, title=name)


def _triangles(found: Distribution) -> Iterable[Component]:
    marked = zip(found.suspects.tolist(), found.suspect_values.tolist(), strict=True)
    for rank, value in [*marked][:MAX_MARKS]:
        yield html.Span("▲", className="suspect-mark", style={"left": _at(found, value)}, title=f"suspect: rank {rank}")


def _suspects(found: Distribution, form: Form) -> list[str]:
    values, ranks = found.suspect_values, found.suspects.tolist()
    if not ranks:
        return []
    span = form(values[0]) if len(ranks) == 1 else f"{form(values.min())} to {form(values.max())}"
    several = "s" * (len(ranks) > 1)
    return [f"▲ suspect{several}: rank{several} {ranks_text(ranks, 6)}, {span}"]
