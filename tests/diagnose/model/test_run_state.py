"""The state of an attempt, from its heartbeats, stalls and steps."""

from diagnose.model.run_state import RunState, state_of
from tests.each_case import each_case

S = 1_000_000_000
NOW_NS = 1_790_000_000 * S


@each_case(
    ("num_ranks", "num_ended", "num_gone", "stalled_s", "heard_s", "state", "is_silent"),
    [
        (8, 8, 0, 50, 900, RunState.ENDED, False),
        (8, 7, 1, 50, 5, RunState.DIED, False),
        (8, 7, 1, None, 900, RunState.DIED, False),
        (8, 0, 0, 50, 5, RunState.STALLED, False),
        (8, 0, 0, 50, 30, RunState.STALLED, True),
        (8, 0, 0, 150, 5, RunState.LIVE, False),
        (8, 0, 0, None, 900, RunState.SILENT, True),
        (0, 0, 0, None, 900, RunState.ENDED, False),
    ],
)
def test_run_state_is_the_worst_known_state(
    num_ranks: int,
    num_ended: int,
    num_gone: int,
    stalled_s: int | None,
    heard_s: int,
    state: RunState,
    is_silent: bool,
) -> None:
    """Times are in seconds before now. The newest step ended 100 seconds ago. No data is newer than the heartbeats."""
    heard_ns = NOW_NS - heard_s * S
    beats = {"heard_ns": heard_ns, "num_ranks": num_ranks, "num_ended": num_ended, "num_gone": num_gone}
    stall = None if stalled_s is None else {"newest_ns": NOW_NS - stalled_s * S}
    found = state_of(beats, stall, last_end_ns=NOW_NS - 100 * S, last_ns=heard_ns, now_ns=NOW_NS)
    assert (found.state, found.heard_ns, found.is_silent) == (state, heard_ns, is_silent)
