"""Random histories: the classes add up to the wall time, and no class is negative."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.goodput.decisions import FAULTS, OPERATOR, SAVES_FIRST
from diagnose.goodput.ledger import make_ledger
from diagnose.goodput.records import AttemptFacts, DriverDecision, Ending, RunHistory, StepTimes
from tests.diagnose.goodput.made_history import EPOCH_NS

NAMES = sorted({*FAULTS, *SAVES_FIRST, *OPERATOR, "check", "admit", "wait", "resume", "done", "give-up", "start"})
times = st.integers(0, 10**12).map(lambda ns: EPOCH_NS + ns)
some_time = st.one_of(st.just(0), times)


@st.composite
def step_times(draw: st.DrawFn) -> StepTimes:
    """Steps in any order, also overlapping, because clocks can jump."""
    count = draw(st.integers(0, 8))
    first = draw(st.integers(0, 20))
    starts = draw(st.lists(times, min_size=count, max_size=count))
    durations = draw(st.lists(st.integers(0, 10**11), min_size=count, max_size=count))
    return StepTimes(
        number=np.arange(first, first + count, dtype=np.int64),
        start_ns=np.array(starts, np.int64),
        duration_ns=np.array(durations, np.int64),
    )


@st.composite
def attempts(draw: st.DrawFn) -> tuple[AttemptFacts, ...]:
    numbers = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True))
    return tuple(
        AttemptFacts(
            attempt=number,
            started_ns=draw(times),
            heard_ns=draw(times),
            steps=draw(step_times()),
            snapshots=draw(step_times()),
            ending=draw(st.sampled_from(Ending)),
            num_ranks=draw(st.integers(0, 2)),
            num_failed=draw(st.integers(0, 2)),
            has_stalled=draw(st.booleans()),
            interrupted_ns=draw(some_time),
            saved_ns=draw(some_time),
        )
        for number in sorted(numbers)
    )


decided = st.lists(
    st.builds(
        DriverDecision,
        at_ns=times,
        attempt=st.integers(0, 9),
        name=st.sampled_from(NAMES),
        reason=st.just(""),
        node=st.sampled_from(["", "a"]),
    ),
    max_size=12,
).map(lambda found: tuple(sorted(found, key=lambda decision: decision.at_ns)))


@settings(max_examples=40, deadline=None)
@given(attempts(), decided, st.one_of(st.none(), st.integers(0, 10**12)))
def test_classes_add_up_to_the_wall_time(
    found: tuple[AttemptFacts, ...], decisions: tuple[DriverDecision, ...], host_wall_ns: int | None
) -> None:
    ledger = make_ledger(RunHistory(run_id="run", attempts=found, decisions=decisions, host_wall_ns=host_wall_ns))
    assert sum(ledger.classes_ns.values()) == ledger.wall_ns
    assert min(ledger.classes_ns.values()) >= 0
    assert all(0 <= incident.cost_ns <= ledger.wall_ns for incident in ledger.incidents)
    assert ledger.goodput is None or 0 <= ledger.goodput <= 1
