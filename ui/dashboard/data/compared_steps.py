"""The step of A and the step of B that the compare page shows on one time axis."""

from dataclasses import dataclass, replace

from diagnose.compare.sides import SideName, parse_side
from telemetry.errors import UsageError
from ui.dashboard.data.compare import side_names
from ui.dashboard.data.core import Reads
from ui.dashboard.defaults import slowest_step, typical_step
from ui.dashboard.records import RunFacts
from ui.dashboard.timeline_view import ONE_STEP
from ui.dashboard.view_state import StepRange, View, ViewState


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOfSide:
    """A step of one side."""

    name: str
    """``A`` or ``B``."""
    facts: RunFacts
    step: int
    typical: int
    """A typical step of the side."""
    slowest: int
    wanted: int | None
    """The step of the address. It is not ``step`` if the side does not have it."""
    steps: StepRange | None
    """The steps of the side. None for all."""

    @property
    def label(self) -> str:
        """The run and attempt of the side: ``gpt/0``."""
        return f"{self.facts.summary.run_id}/{self.facts.summary.attempt}"

    @property
    def is_typical(self) -> bool:
        return self.step == self.typical

    @property
    def words(self) -> str:
        """The step in words: ``step 30 of A, a typical step``."""
        return f"step {self.step} of {self.name}" + ", a typical step" * self.is_typical

    @property
    def wall_ns(self) -> float | None:
        """The step time. None for a step that is not complete."""
        wall = self.facts.steps.duration_ns[self.facts.steps.step == self.step]
        return float(wall[0]) if len(wall) else None

    def timeline(self, state: ViewState) -> ViewState:
        """The timeline of this step alone, with the group, rank and pins of ``state``."""
        run, world = self.facts.summary, self.facts.topology.world_size
        return replace(
            state,
            view=View.TIMELINE,
            run=run.run_id,
            attempt=run.attempt,
            steps=self.steps,
            step=self.step,
            rank=state.rank if state.rank is None or state.rank < world else None,
            pins=tuple(pin for pin in state.pins if pin < world),
            span=None,
            zoom=None,
            area=None,
            ideal=False,
            timeline=ONE_STEP,
        )


def compared_steps(state: ViewState, reads: Reads) -> tuple[StepOfSide, StepOfSide]:
    """The steps of A and B in the address. Without a choice: typical steps. If both sides are the same attempt, the
    default of B is the slowest step of the newest hundred.

    Raises:
        UnknownRunError: a run is not stored.
        UsageError: the name of a side is not valid, or a side has no step.
    """
    a, b = side_names(state, reads)
    names = parse_side(a or b), parse_side(b)
    facts_a, facts_b = (reads.facts(ViewState(run=name.run_id, attempt=name.attempt)) for name in names)
    is_one = facts_a.summary.key == facts_b.summary.key and names[0].window == names[1].window
    return (
        _step_of("A", names[0], facts_a, state.timeline.a_step),
        _step_of("B", names[1], facts_b, state.step, is_slowest=is_one),
    )


def _step_of(name: str, side: SideName, facts: RunFacts, wanted: int | None, *, is_slowest: bool = False) -> StepOfSide:
    if not len(facts.steps.step):
        raise UsageError(f"{side} has no complete step", hint=f"choose another run for {name}")
    window = None if side.window is None else StepRange(side.window.first_step, side.window.last_step)
    typical, slowest = typical_step(facts, window), slowest_step(facts, window)
    default = slowest if is_slowest else typical
    return StepOfSide(
        name=name,
        facts=facts,
        step=wanted if wanted is not None and wanted in facts.steps.step else default,
        typical=typical,
        slowest=slowest,
        wanted=wanted,
        steps=window,
    )
