"""Steps and spans that are inferred from the calls of a training loop."""

import weakref
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

import telemetry
from telemetry.attach.optimizers import MAX_OTHER_STEPS
from telemetry.attach.steps import MAX_LOADS
from telemetry.attach.training import Training
from telemetry.record import layout
from telemetry.record.recording import RECORDER
from telemetry.stages import Stage
from tests.telemetry.recording import recorded, session


class Optimizer:
    """Any object that supports weak references."""


class Loop:
    """A training loop that reports its calls to a :class:`Training`."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.num_operations = 0
        self.training = Training(RECORDER, lambda: self.num_operations)
        self.adam = Optimizer()

    def load(self, *, completed: bool = True) -> None:
        if (span := self.training.begin_load()) is not None:
            self.training.end_load(span, completed=completed)

    def forward(self, *, with_grad: bool = True, inside: int = 0) -> None:
        span = self.training.begin_forward(with_grad=with_grad)
        if inside:
            self.forward(with_grad=with_grad, inside=inside - 1)
        if span is not None:
            self.training.end_call(span, completed=True)

    def backward(self, *, recomputes: bool = False) -> None:
        span = self.training.begin_backward()
        if recomputes:
            self.forward()
        if span is not None:
            self.training.end_call(span, completed=True)

    def step(self, optimizer: Optimizer | None = None, *, closure: bool = False, done: int | None = None) -> None:
        optimizer = optimizer or self.adam
        self.training.begin_optimizer(optimizer, with_closure=closure, steps_done=lambda: done)
        if closure:
            self.forward()
            self.backward()
        self.training.end_optimizer(optimizer, optimizer)

    def save(self) -> None:
        if (span := self.training.begin_checkpoint(Stage.CHECKPOINT_WRITE)) is not None:
            self.training.end_call(span, completed=True)

    def iteration(self, *, microbatches: int = 1) -> None:
        for _ in range(microbatches):
            self.load()
            self.forward()
            self.backward()
        self.step()

    def spans(self) -> list[tuple[int, str]]:
        """Step and stage of each record, in the order of their ends."""
        spans = recorded(self.spool).spans
        return [
            (int(step), Stage(int(code)).label)  # type: ignore[call-arg]
            for step, code in zip(spans["step"], spans["stage"], strict=True)
            if code != Stage.GC
        ]

    def counted(self, label: str) -> list[int]:
        """Steps of the spans of one stage."""
        return [step for step, stage in self.spans() if stage == label]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    with session(tmp_path):
        yield Loop(tmp_path)


def test_step_lasts_from_its_data_load_to_the_data_load_of_the_next_step(loop: Loop) -> None:
    for _ in range(2):
        loop.iteration()
    loop.training.end(failed=False)
    parts = ["data-load", "forward-compute", "forward-compute", "backward-compute", "optimizer", "step"]
    assert loop.spans() == [(0, part) for part in parts] + [(1, part) for part in parts]
    spans = recorded(loop.spool).spans
    steps = spans[spans["stage"] == Stage.STEP]
    assert steps["start_ns"][0] + steps["duration_ns"][0] <= steps["start_ns"][1]
    compute = spans[spans["stage"] == Stage.FORWARD_COMPUTE]
    assert (compute["cpu_ns"] >= 0).all()


def test_accumulated_gradients_are_microbatches_of_one_step(loop: Loop) -> None:
    loop.iteration(microbatches=3)
    loop.iteration(microbatches=3)
    loop.training.end(failed=False)
    spans = recorded(loop.spool).spans
    backwards = spans[spans["stage"] == Stage.BACKWARD_COMPUTE]
    assert backwards["step"].tolist() == [0] * 3 + [1] * 3
    assert backwards["microbatch"].tolist() == [0, 1, 2] * 2
    assert loop.counted("step") == [0, 1]


def test_submodule_calls_and_recomputed_activations_are_not_recorded_as_forwards(loop: Loop) -> None:
    loop.forward(inside=3)
    loop.backward(recomputes=True)
    loop.step()
    assert loop.counted("forward-compute") == [0, 0]  # the model, and the loss


def test_loss_that_communicates_is_not_recorded_as_a_forward(loop: Loop) -> None:
    loop.forward()
    loop.num_operations += 1
    loop.backward()
    assert loop.counted("forward-compute") == [0]


def test_first_optimizer_ends_the_step_and_other_optimizers_are_spans_within_steps(loop: Loop) -> None:
    discriminator, generator = Optimizer(), Optimizer()
    for _ in range(3):
        for optimizer in (discriminator, generator):
            loop.forward()
            loop.backward()
            loop.step(optimizer)
    loop.training.end(failed=False)
    assert loop.counted("step") == [0, 1, 2]
    assert loop.counted("optimizer") == [0, 1, 1, 2, 2, 3]


def test_optimizers_that_step_one_after_the_other_belong_to_one_step(loop: Loop) -> None:
    muon = Optimizer()
    for _ in range(2):
        loop.forward()
        loop.backward()
        loop.step()
        loop.step(muon)
    loop.training.end(failed=False)
    assert loop.counted("optimizer") == [0, 0, 1, 1]
    assert loop.counted("step") == [0, 1]


def test_another_optimizer_ends_steps_when_the_first_one_is_deleted_or_idle(loop: Loop) -> None:
    first, second = Optimizer(), Optimizer()
    loop.forward()
    loop.step(first)
    gone = weakref.ref(first)
    del first
    assert gone() is None
    for _ in range(2):
        loop.forward()
        loop.step(second)
    third = Optimizer()
    for _ in range(MAX_OTHER_STEPS + 2):
        loop.forward()
        loop.step(third)
    loop.training.end(failed=False)
    assert loop.counted("step") == list(range(6))


def test_optimizer_closure_is_recorded_as_forward_and_backward(loop: Loop) -> None:
    for _ in range(2):
        loop.load()
        loop.step(closure=True)
    loop.training.end(failed=False)
    assert loop.counted("forward-compute") == [0, 0, 1, 1]
    assert loop.counted("backward-compute") == [0, 1]
    assert loop.counted("step") == [0, 1]
    spans = recorded(loop.spool).spans
    optimizer = spans[spans["stage"] == Stage.OPTIMIZER][0]
    backward = spans[spans["stage"] == Stage.BACKWARD_COMPUTE][0]
    assert optimizer["start_ns"] >= backward["start_ns"] + backward["duration_ns"]


def test_step_skipped_by_the_gradient_scaler_is_counted(loop: Loop) -> None:
    scaler = Optimizer()
    for skips in (True, False, True):
        loop.forward()
        loop.backward()
        loop.training.begin_optimizer(scaler)
        if not skips:
            loop.step()
        loop.training.end_optimizer(scaler, loop.adam)
    loop.training.end(failed=False)
    assert loop.counted("step") == [0, 1, 2]
    assert loop.counted("optimizer") == [0, 1, 2]


def test_zero_grad_ends_the_step_of_a_compiled_optimizer(loop: Loop) -> None:
    for _ in range(3):
        loop.training.see_zero_grad(loop.adam)
        loop.forward()
        loop.backward()
    loop.training.see_zero_grad(loop.adam)
    loop.training.end(failed=False)
    assert loop.counted("step") == [0, 1, 2]


def test_steps_are_recorded_after_an_optimizer_raised(loop: Loop) -> None:
    loop.forward()
    loop.training.begin_optimizer(loop.adam)  # and raises
    for _ in range(2):
        loop.forward()
        loop.step()
    loop.training.end(failed=False)
    assert loop.counted("step") == [0, 1]


def test_steps_are_recorded_after_an_optimizer_raised_and_was_replaced(loop: Loop) -> None:
    loop.iteration()
    loop.training.begin_optimizer(loop.adam)  # and raises
    loop.adam = Optimizer()
    for _ in range(2):
        loop.iteration()
    loop.training.end(failed=False)
    assert loop.counted("optimizer") == loop.counted("step") == [0, 1, 2]


def test_optimizer_span_is_closed_after_the_gradient_scaler_raised(loop: Loop) -> None:
    loop.forward()
    loop.training.begin_optimizer(Optimizer())
    loop.training.see_failed_optimizer()
    assert RECORDER.words[layout.WORD_OPEN_SINCE + Stage.OPTIMIZER] == 0
    loop.backward()
    assert RECORDER.words[layout.WORD_OPEN_SINCE + Stage.OPTIMIZER] == 0


def test_optimizer_called_in_the_backward_on_another_thread_ends_the_step(loop: Loop) -> None:
    def step() -> None:
        loop.training.begin_optimizer(loop.adam, in_backward=True)
        loop.training.end_optimizer(loop.adam, loop.adam, in_backward=True)

    for _ in range(3):
        loop.forward()
        backward = loop.training.begin_backward()
        assert backward is not None
        of_torch = Thread(target=step)
        of_torch.start()
        of_torch.join()
        loop.training.end_call(backward, completed=True)
    loop.training.end(failed=False)
    assert loop.counted("step") == loop.counted("backward-compute") == [0, 1, 2]
    assert loop.counted("optimizer") == []


def test_thread_that_calls_backward_is_followed_before_the_first_optimizer_step(loop: Loop) -> None:
    made = Thread(target=lambda: setattr(loop, "training", Training(RECORDER)))
    made.start()
    made.join()
    loop.backward()
    loop.forward()
    assert loop.counted("backward-compute") == loop.counted("forward-compute") == [0]


def test_number_of_data_loads_kept_before_the_first_forward_is_limited(loop: Loop) -> None:
    for _ in range(MAX_LOADS + 10):
        loop.load()
    loop.forward()
    assert len(loop.counted("data-load")) == MAX_LOADS


def test_optimizer_step_before_the_session_is_not_recorded(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.step()
    with session(tmp_path):
        loop.iteration()
        loop.training.end(failed=False)
    assert loop.counted("step") == [0]


def test_evaluations_are_between_steps_and_their_data_loads_are_not_recorded(loop: Loop) -> None:
    loop.iteration()
    for _ in range(3):
        loop.load()
        loop.forward(with_grad=False)
    loop.iteration()
    loop.training.end(failed=False)
    assert loop.counted("evaluation") == [0, 0, 0]
    assert loop.counted("data-load") == [0, 1]
    assert loop.counted("step") == [0, 1]
    assert loop.counted("forward-compute") == [0, 0, 1, 1]


def test_a_checkpoint_ends_the_step_before_it(loop: Loop) -> None:
    loop.iteration()
    loop.save()
    loop.iteration()
    loop.training.end(failed=False)
    labels = [stage for _, stage in loop.spans()]
    assert labels.index("step") < labels.index("checkpoint-write")
    assert loop.counted("step") == [0, 1]


def test_exhausted_data_loader_is_not_recorded_as_a_load(loop: Loop) -> None:
    loop.iteration()
    loop.load(completed=False)
    loop.training.end(failed=False)
    assert loop.counted("data-load") == [0]
    assert loop.counted("step") == [0]


def test_an_interrupted_step_leaves_a_mark_and_no_span(loop: Loop) -> None:
    loop.iteration()
    loop.load()
    loop.forward()
    loop.training.end(failed=True)
    assert loop.counted("step") == [0]
    assert [name for name, _ in recorded(loop.spool).marks] == ["step-interrupted"]


def test_resumed_training_continues_the_step_count_of_its_optimizer(loop: Loop) -> None:
    loop.forward()
    loop.backward()
    loop.step(done=41)
    loop.iteration()
    loop.training.end(failed=False)
    assert loop.counted("step") == [41, 42]


def test_spans_of_the_user_replace_inferred_spans(loop: Loop) -> None:
    for _ in range(2):
        with telemetry.span("forward-compute"):
            loop.forward()
        span = loop.training.begin_backward()
        assert span is not None
        with telemetry.span("backward-compute"):
            pass
        loop.training.end_call(span, completed=True)
        loop.step()
    loop.training.end(failed=False)
    assert loop.counted("forward-compute") == loop.counted("backward-compute") == [0, 1]
    assert loop.counted("step") == [0, 1]


def test_no_step_is_inferred_when_the_user_records_steps(loop: Loop) -> None:
    for number in (7, 8):
        loop.load()
        with telemetry.step(number):
            loop.forward()
            with telemetry.span("backward-compute"):
                loop.backward()
            loop.step()
        loop.save()
    loop.training.end(failed=False)
    assert loop.counted("step") == [7, 8]
    assert loop.counted("optimizer") == [7, 8]
    assert loop.counted("forward-compute") == [7, 7, 8, 8]  # the model and the loss
    assert loop.counted("backward-compute") == [7, 8]
    assert loop.counted("checkpoint-write") == []


def test_backwards_within_a_user_step_are_numbered_as_microbatches(loop: Loop) -> None:
    for number in (7, 8):
        with telemetry.step(number):
            for _ in range(2):
                loop.forward()
                loop.backward()
    spans = recorded(loop.spool).spans
    assert spans[spans["stage"] == Stage.BACKWARD_COMPUTE]["microbatch"].tolist() == [0, 1] * 2
    assert spans[spans["stage"] == Stage.FORWARD_COMPUTE]["microbatch"].tolist() == [0, 0, 1, 1] * 2


def test_training_calls_of_other_threads_are_not_recorded(loop: Loop) -> None:
    loop.iteration()
    other = Thread(target=loop.iteration)
    other.start()
    other.join()
    loop.iteration()
    loop.training.end(failed=False)
    assert loop.counted("step") == [0, 1]
    assert loop.counted("backward-compute") == [0, 1]


def test_nothing_is_recorded_after_switch_off(loop: Loop) -> None:
    """A forked child calls it."""
    loop.training.switch_off()
    loop.iteration()
    loop.training.end(failed=False)
    assert loop.spans() == []


def test_engine_step_without_an_optimizer_call_is_recorded_with_its_number(loop: Loop) -> None:
    engine = Optimizer()
    for num_steps in (1, 2, 3):
        loop.load()
        loop.forward()
        loop.backward()
        if num_steps != 2:
            loop.step()
        loop.training.see_step(engine, num_steps)
    loop.training.end(failed=False)
    assert loop.counted("step") == [0, 1, 2]
    assert loop.counted("optimizer") == [0, 2]
    assert loop.counted("data-load") == [0, 1, 2]


def test_a_loaded_checkpoint_sets_the_number_of_the_next_step(loop: Loop) -> None:
    engine = Optimizer()
    loop.iteration()
    loop.training.see_step(engine, 1)
    loop.training.count_from(40)
    loop.iteration()
    loop.training.see_step(engine, 41)
    loop.training.end(failed=False)
    assert loop.counted("step") == [0, 40]
    assert loop.counted("forward-compute") == [0, 0, 40, 40]


def test_forward_gets_the_microbatch_and_chunk_given_by_the_framework(loop: Loop) -> None:
    loop.training.place = 5, 1
    loop.forward()
    loop.training.place = None
    loop.backward()
    loop.step()
    spans = recorded(loop.spool).spans
    forwards = spans[spans["stage"] == Stage.FORWARD_COMPUTE]
    assert [(span["microbatch"], span["chunk"]) for span in forwards] == [(5, 1)]
