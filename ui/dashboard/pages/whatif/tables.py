"""A slowdown in tables: what each remedy would give, and the worst parts with the ways to them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc
from dash.development.base_component import Component

from diagnose.whatif.analysis import WhatIf
from diagnose.whatif.conclude import Conclusion
from telemetry.topology import Place
from ui.dashboard.figures.blame import stage_of
from ui.dashboard.pages.controls import at_stage, stage_timeline, timeline_of
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import ranks_in_words

MOST_WORKERS, MOST_PARTS = 5, 3
LEAST = 1.001
"""What slows the ideal step less is not told."""


def gains_table(found: Conclusion, figures: WhatIf) -> Component:
    """Each remedy with the time that it saves."""
    worst, rows = found.worst_workers, [(fix.change, *_gain(fix.saved_s, fix.share)) for fix in found.fixes]
    if worst is not None:
        num_steps, before_s = len(figures.rows), float(worst.step_s[0])
        rows += [
            (_worst_in_words(number), *_gain((before_s - step_s) * num_steps, 1 - step_s / before_s))
            for number, step_s in zip(worst.num_fixed[1:].tolist(), worst.step_s[1:].tolist(), strict=True)
            if number & (number - 1) == 0
        ]
    if not rows:
        return dmc.Text("Nothing to put right.", size="sm", c="dimmed")
    return _table(("What if", "Saved in these steps", "Of step time"), rows)


def _gain(saved_s: float, share: float) -> tuple[str, str]:
    """Below zero the noise of the steps is larger than what there is to gain."""
    return (f"{saved_s:.2f} s", f"{share:.1%}") if saved_s > 0 else ("none", "")


def worst_table(figures: WhatIf, facts: RunFacts, state: ViewState, step: int) -> Component:
    """The worst workers, places and stages. ``state``: the view, its run named; ``step``: where timelines lead."""
    rows = [*_workers(figures, facts, state, step), *_places(figures, state, step), *_stages(figures, state)]
    return _table(("Part", "Alone", "Ranks", "Show"), rows)


def _workers(figures: WhatIf, facts: RunFacts, state: ViewState, step: int) -> Iterator[Sequence[object]]:
    topology = figures.topology
    if figures.by_worker.size < 2:
        return
    for dp, pp in figures.worst_first[:MOST_WORKERS].tolist():
        first = topology.rank(Place(dp=dp, pp=pp, tp=0))
        ratio, ranks = float(figures.by_worker[dp, pp]), topology.group(first, along="tp")
        hosts = ", ".join(dict.fromkeys(facts.hosts[rank] or "unknown host" for rank in ranks))
        if ratio >= LEAST:
            where = f"{ranks_in_words(ranks)} on {hosts}"
            yield (
                f"worker {topology.replica(dp)} pp{pp}",
                _alone(ratio),
                where,
                _link("timeline", timeline_of(state, first, step)),
            )


def _places(figures: WhatIf, state: ViewState, step: int) -> Iterator[Sequence[object]]:
    topology = figures.topology
    parts = [
        *((ratio, "pp", index) for index, ratio in enumerate(figures.by_pp.tolist()) if topology.pp > 1),
        *((ratio, "dp", index) for index, ratio in enumerate(figures.by_dp.tolist()) if topology.dp > 1),
    ]
    for ratio, axis, index in sorted(parts, key=lambda part: -part[0])[:MOST_PARTS]:
        if axis == "pp":
            to = stage_timeline(state, topology.rank(Place(dp=0, pp=index, tp=0)), step)
        else:
            to = timeline_of(state, topology.rank(Place(dp=index, pp=0, tp=0)), step)
        name = f"pipeline rank pp{index}" if axis == "pp" else f"replica {topology.replica(index)}"
        if ratio >= LEAST:
            yield name, _alone(ratio), "", _link("timeline", to)


def _stages(figures: WhatIf, state: ViewState) -> Iterator[Sequence[object]]:
    for label, ratio in sorted(figures.by_stage.items(), key=lambda item: -item[1])[:MOST_PARTS]:
        if ratio >= LEAST:
            to = replace(at_stage(state, stage_of(label)), view=View.HEAT_MAP)
            yield label, _alone(ratio), "", _link("heat map", to)


def _worst_in_words(number: int) -> str:
    return "the worst worker as fast as ideal" if number == 1 else f"the worst {number} workers as fast as ideal"


def _alone(ratio: float) -> str:
    return f"{ratio:.3f}x"


def _link(text: str, state: ViewState) -> Component:
    return dcc.Link(text, href=state.search())


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> Component:
    head = dmc.TableThead(dmc.TableTr([dmc.TableTh(name) for name in names]))
    body = dmc.TableTbody([dmc.TableTr([dmc.TableTd(cell) for cell in row]) for row in rows])
    return dmc.TableScrollContainer(dmc.Table([head, body], className="small-table"), minWidth=380)
