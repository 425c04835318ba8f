"""Each link loss is reported exactly once, in whatever order samples and netlink messages show it."""

from collections import deque
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.agent.samplers.carrier import Carrier
from telemetry.agent.samplers.interface import Event
from telemetry.agent.samplers.link_events import LinkLedger, LinkMessage, LinkState
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening
from tests.telemetry.agent.samplers.made_kernel import Kernel, Window
from tests.telemetry.agent.samplers.sample_values import losses

PEERS_DOING = st.sampled_from(["lose", "gain", "flap"])
OWNERS_DOING = st.sampled_from(["take_down", "put_up"])


def stories(changes: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, Any]]]:
    """Steps: a change, a message that may be torn, lost messages, delivered messages, a sample with changes inside."""
    step = st.one_of(
        st.tuples(st.just("change"), changes),
        st.tuples(st.just("send"), st.lists(PEERS_DOING, max_size=2)),
        st.tuples(st.just("drop"), st.integers(0, 3)),
        st.tuples(st.just("deliver"), st.integers(1, 4)),
        st.tuples(st.just("sample"), st.lists(changes, max_size=12)),
    )
    return st.lists(step, max_size=40)


STEPS = stories(PEERS_DOING | OWNERS_DOING)
PEERS_STEPS = stories(PEERS_DOING)


class Story:
    """One link, one sampler, and messages on their way between them."""

    def __init__(self, *, begins_up: bool, counts_each_way: bool = True) -> None:
        self.kernel = Kernel(has_carrier=begins_up)
        self.window = Window(self.kernel, counts_each_way)
        self.carrier = Carrier("eth0", self.window)
        self.on_their_way: deque[LinkMessage] = deque()
        self.events: list[Event] = []
        self.now_ns = 0
        self.events += self.carrier.sample(0)
        self.downs_before = self.kernel.downs
        self.events.clear()

    def play(self, steps: list[tuple[str, Any]]) -> None:
        for verb, what in steps:
            self.now_ns += 1
            getattr(self, f"_{verb}")(what)

    def settle(self) -> None:
        """Deliver the remaining messages. Then take a sample while nothing changes."""
        self._deliver(len(self.on_their_way))
        self._sample([])

    def _change(self, name: str) -> None:
        for part in ("lose", "gain") if name == "flap" else (name,):
            getattr(self.kernel, part)()

    def _send(self, meanwhile: list[str]) -> None:
        def between() -> None:
            for name in meanwhile:
                self._change(name)

        self.on_their_way.append(self.kernel.message(self.now_ns, between))

    def _drop(self, number: int) -> None:
        for _ in range(min(number, len(self.on_their_way))):
            self.on_their_way.popleft()

    def _deliver(self, number: int) -> None:
        for _ in range(min(number, len(self.on_their_way))):
            self.events += self.carrier.take(self.on_their_way.popleft())

    def _sample(self, meanwhile: list[str]) -> None:
        self.window.due = [self._due(name) for name in meanwhile]
        self.events += self.carrier.sample(self.now_ns)
        self.window.due = []

    def _due(self, name: str) -> Callable[[], None]:
        return lambda: self._change(name)


def link_downs_and_flaps(events: list[Event]) -> int:
    return losses([event for event in events if event.name != Happening.LINK_TAKEN_DOWN])


@given(steps=STEPS, begins_up=st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_every_link_loss_is_reported_once_in_any_order_of_samples_and_messages(
    steps: list[tuple[str, Any]], begins_up: bool
) -> None:
    story = Story(begins_up=begins_up)
    story.play(steps)
    story.settle()
    assert losses(story.events) == story.kernel.downs - story.downs_before


@given(steps=PEERS_STEPS, begins_up=st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_link_downs_and_flaps_match_the_kernel_count_when_the_link_is_never_taken_down(
    steps: list[tuple[str, Any]], begins_up: bool
) -> None:
    story = Story(begins_up=begins_up)
    story.play(steps)
    story.settle()
    assert link_downs_and_flaps(story.events) == story.kernel.downs - story.downs_before
    assert all(event.name != Happening.LINK_TAKEN_DOWN for event in story.events)


@given(steps=STEPS, begins_up=st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_last_event_matches_the_state_of_the_link(steps: list[tuple[str, Any]], begins_up: bool) -> None:
    story = Story(begins_up=begins_up)
    story.play(steps)
    story.settle()
    told = [event.name for event in story.events if event.name != Happening.LINK_FLAPS]
    is_up = told[-1] == Happening.LINK_UP if told else begins_up
    assert is_up == (story.kernel.state is LinkState.UP)


@given(steps=PEERS_STEPS, begins_up=st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_link_down_and_link_up_events_alternate(steps: list[tuple[str, Any]], begins_up: bool) -> None:
    story = Story(begins_up=begins_up)
    story.play(steps)
    told = [event.name for event in story.events if event.name != Happening.LINK_FLAPS]
    expected = [Happening.LINK_DOWN, Happening.LINK_UP] if begins_up else [Happening.LINK_UP, Happening.LINK_DOWN]
    assert told == (expected * len(told))[: len(told)]


def test_repeated_messages_for_one_change_produce_one_event_with_the_first_time() -> None:
    story = Story(begins_up=True)
    story.play([("change", "lose"), ("send", []), ("send", []), ("change", "gain"), ("send", []), ("send", [])])
    story.settle()
    assert [(event.at_ns, event.name) for event in story.events] == [(2, "link-down"), (5, "link-up")]


def test_message_after_several_flaps_produces_an_event_with_their_number() -> None:
    story = Story(begins_up=True)
    story.play([("change", "flap"), ("change", "flap"), ("change", "lose"), ("send", [])])
    story.settle()
    assert [(event.name, event.text) for event in story.events] == [("link-flaps", "2"), ("link-down", "no carrier")]


def test_message_that_is_older_than_a_sample_produces_no_event() -> None:
    story = Story(begins_up=True)
    story.play([("change", "lose"), ("send", []), ("change", "gain"), ("sample", [])])
    told = len(story.events)
    story.settle()
    assert len(story.events) == told
    assert losses(story.events) == 1


def test_losses_of_a_link_that_flaps_throughout_a_sample_are_reported_by_the_next_sample() -> None:
    story = Story(begins_up=True)
    story.play([("sample", ["flap"] * 100)])
    assert story.events == []
    story.settle()
    assert losses(story.events) == story.kernel.downs


def test_link_taken_down_by_its_owner_is_not_reported_as_link_down() -> None:
    story = Story(begins_up=True)
    story.play(
        [
            ("change", "take_down"),
            ("sample", []),
            ("change", "put_up"),
            ("sample", []),
            ("change", "gain"),
            ("sample", []),
        ]
    )
    assert [event.name for event in story.events] == ["link-taken-down", "link-up"]
    assert link_downs_and_flaps(story.events) == 0


@given(steps=STEPS, begins_up=st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_last_event_matches_the_link_state_when_the_kernel_counts_only_changes(
    steps: list[tuple[str, Any]], begins_up: bool
) -> None:
    story = Story(begins_up=begins_up, counts_each_way=False)
    story.play([(verb, []) if verb in ("sample", "send") else (verb, what) for verb, what in steps])
    story.settle()
    told = [event.name for event in story.events if event.name != Happening.LINK_FLAPS]
    assert (told[-1] == Happening.LINK_UP if told else begins_up) == (story.kernel.state is LinkState.UP)


def test_link_loss_is_reported_once_when_its_count_rises_later() -> None:
    ledger = LinkLedger("mlx5_0/1")
    told = [
        *ledger.observe(1, LinkState.UP, 3, ""),
        *ledger.observe(2, LinkState.DOWN, 3, ""),
        *ledger.observe(3, LinkState.DOWN, 4, ""),
        *ledger.observe(4, LinkState.UP, 4, ""),
    ]
    assert [event.name for event in told] == ["link-down", "link-up"]


def test_link_loss_that_is_never_counted_does_not_hide_a_later_loss() -> None:
    ledger = LinkLedger("mlx5_0/1")
    for at_ns, state in enumerate((LinkState.UP, LinkState.DOWN, LinkState.UP, LinkState.UP)):
        ledger.observe(at_ns, state, 3, "")
    assert [event.text for event in ledger.observe(9, LinkState.UP, 4, "")] == ["1"]


def test_falling_loss_count_is_a_counter_reset_and_produces_no_event() -> None:
    ledger = LinkLedger("mlx5_0/1")
    ledger.observe(1, LinkState.UP, 200, "")
    assert ledger.observe(2, LinkState.UP, 0, "") == []
    assert [event.text for event in ledger.observe(3, LinkState.UP, 2, "")] == ["2"]


def test_link_that_is_down_at_the_first_sample_is_reported_as_already_down() -> None:
    (event,) = LinkLedger("eth0").observe(1, LinkState.DOWN, 12, "no carrier")
    assert event.name == Happening.LINK_DOWN
    assert event.text.startswith(LINK_ALREADY_DOWN)
