"""What a training loop does, inferred from calls into torch: spans of its parts, in steps (``steps.py``).

- Only the outermost call counts. Submodules, and recomputed activations in a backward, are not recorded as forwards.
- From the end of a forward to its backward the loss is computed. This is a second forward span, unless a collective or
  a transfer was issued in between.
- A compiled optimizer calls no hook. Its next ``zero_grad`` after a backward shows that it has stepped.
- An optimizer that steps within a backward (a hook of a gradient) has no span. The backward contains its time.
- A span of the user replaces the inferred one: while one is open, nothing is inferred.

Hooks call these methods on any thread. Only the thread that trains is followed: the thread whose optimizer steps. Until
a step, it is the thread that calls ``backward``. The methods may raise. Their callers count the error
(``own_errors.py``).
"""

from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from typing import Any

from telemetry.attach.inferred_span import InferredSpan, is_capturing
from telemetry.attach.optimizers import Optimizers
from telemetry.attach.steps import Steps
from telemetry.record import layout
from telemetry.record.recorder import Recorder
from telemetry.stages import Stage


class Training:
    """Follows the training loop of this process."""

    def __init__(self, recorder: Recorder, count_operations: Callable[[], int] = lambda: 0) -> None:
        self._recorder = recorder
        self._count_operations = count_operations
        self.is_busy = False
        """Whether calls are ignored: they are inside an open span, or nothing is followed any more."""
        self.thread = get_ident()
        """The thread of the loop. Calls on other threads are ignored."""
        self.place: tuple[int, int] | None = None
        """Microbatch and chunk (or -1) of the next forward, if a framework reports them."""
        self._is_off = False
        self._thread_is_known = False
        self._steps = Steps(recorder)
        self._optimizers = Optimizers()
        self._open: InferredSpan | None = None
        """The outermost load, forward, backward, evaluation or checkpoint."""
        self._loss: tuple[InferredSpan, int] | None = None
        """A span that began at the end of a forward, and the number of operations at that time."""
        self._optimizer: InferredSpan | None = None

    def switch_off(self) -> None:
        """Follow nothing any more: in a forked child, and after too many errors."""
        self._is_off = self.is_busy = True

    def begin_load(self) -> InferredSpan | None:
        """A data load begins. Pass the result, if any, to :meth:`end_load`."""
        if not self._follows():
            return None
        self._drop_loss()
        self._pause_optimizer()
        self._steps.enter()
        return self._begin(Stage.DATA_LOAD)

    def end_load(self, span: InferredSpan, *, completed: bool) -> None:
        """A data load ends. ``completed`` is False if the data ended or loading failed."""
        self._finish_open()
        if completed:
            self._steps.add_load(span)
        else:
            span.discard()
            self._steps.without_load()
        self._resume_optimizer()

    def begin_forward(self, *, with_grad: bool) -> InferredSpan | None:
        """A forward begins; without gradients, an evaluation. Pass the result, if any, to :meth:`end_call`."""
        if not self._follows():
            return None
        self._drop_loss()
        self._pause_optimizer()
        if with_grad:
            self._steps.enter(confirm=True)
            return self._begin(Stage.FORWARD_COMPUTE, *(self.place or (self._steps.microbatch(), -1)))
        self._steps.leave()
        return self._begin(Stage.EVALUATION)

    def begin_backward(self) -> InferredSpan | None:
        """A backward begins. Pass the result, if any, to :meth:`end_call`."""
        if not self._thread_is_known and self._open is None:
            self.thread = get_ident()
        if not self._follows():
            return None
        self._pause_optimizer()
        loss = self._end_loss()
        self._steps.enter(confirm=True)
        microbatch = self._steps.add_backward()
        return self._begin(Stage.BACKWARD_COMPUTE, microbatch, after=loss)

    def begin_chunk(self, stage: Stage, microbatch: int, chunk: int) -> InferredSpan | None:
        """A forward or backward of a pipeline begins. Pass the result, if any, to :meth:`end_call`."""
        if not self._follows():
            return None
        self._drop_loss()
        self._pause_optimizer()
        self._steps.enter(confirm=True)
        return self._begin(stage, microbatch, chunk)

    def begin_checkpoint(self, stage: Stage) -> InferredSpan | None:
        """A checkpoint begins. ``stage``: checkpoint-write, or checkpoint-snapshot if another thread writes it. Pass
        the result, if any, to :meth:`end_call`."""
        if not self._follows():
            return None
        self._drop_loss()
        self._pause_optimizer()
        self._steps.leave()
        return self._begin(stage)

    def end_call(self, span: InferredSpan, *, completed: bool) -> None:
        """A call ends. ``completed`` is False if it raised. Its span is then not recorded."""
        self._finish_open()
        if completed:
            span.end(self._steps.number())
        else:
            span.discard()
        if span.stage is Stage.FORWARD_COMPUTE and completed and span.chunk < 0:
            loss = InferredSpan(self._recorder, Stage.FORWARD_COMPUTE, span.microbatch, after=span)
            self._loss = loss, self._count_operations()
        self._resume_optimizer()

    def begin_optimizer(
        self,
        who: Any,
        *,
        with_closure: bool = False,
        in_backward: bool = False,
        steps_done: Callable[[], int | None] | None = None,
    ) -> None:
        """An optimizer, or the scaler around it, begins to step. ``in_backward``: a backward calls it, maybe on a
        thread of torch. ``steps_done``: returns the number of its steps before, to number the first step of this
        process."""
        if in_backward or self._is_off:
            return
        if not self._thread_is_known:
            self.thread, self._thread_is_known = get_ident(), True
        if not self._is_on_thread() or not self._optimizers.begin(who, with_closure=with_closure):
            return
        self._drop_loss()
        if not self._may_see():
            return
        step = self._steps.current
        if step is None or (with_closure and step.stepped_ns):
            self._steps.enter(confirm=True)
        if not self._optimizers.have_closer and steps_done is not None:
            self._steps.renumber(steps_done())
        if self._open is None and not self._user_times():
            self._optimizer = InferredSpan(self._recorder, Stage.OPTIMIZER)

    def end_optimizer(self, who: Any, optimizer: Any, *, in_backward: bool = False) -> None:
        """The optimizer has stepped, or the scaler has skipped its step."""
        if in_backward:
            self._step_in_backward()
            return
        if not self._is_on_thread() or not self._optimizers.end(who):
            return
        span, self._optimizer = self._optimizer, None
        if span is not None:
            span.end(self._steps.number())
        if self._optimizers.ends_steps(optimizer) and self._steps.current is not None:
            self._steps.current.has_stepped()

    def see_failed_optimizer(self) -> None:
        """A step of an optimizer has raised."""
        if self._is_on_thread():
            self._optimizers.forget()
            self._pause_optimizer()

    def see_zero_grad(self, optimizer: Any) -> None:
        """An optimizer is about to clear its gradients."""
        step = self._steps.current
        if step is None or not step.num_backwards or step.stepped_ns or not self._is_on_thread():
            return
        if not self._optimizers.has_stepped and self._optimizers.ends_steps(optimizer):
            step.stepped_ns = monotonic_ns()

    def count_from(self, number: int) -> None:
        """Number the next step. For a loop that knows its step numbers."""
        if self._is_on_thread():
            self._steps.count_from(number)

    def see_step(self, owner: Any, num_steps: int) -> None:
        """``owner``, which steps its optimizers itself, has ended its ``num_steps``-th step. The step is recorded even
        if no optimizer stepped. ``owner`` ends all steps from now on."""
        if not self._is_on_thread():
            return
        self._optimizers.set_closer(owner)
        if self._steps.current is not None:
            self._steps.current.has_stepped()
            self._steps.renumber(num_steps - 1)

    def end(self, *, failed: bool) -> None:
        """The recording ends."""
        self._drop_loss()
        if not self._is_off:
            self._steps.end(failed=failed)

    def _step_in_backward(self) -> None:
        """The last optimizer in a backward ends the step. The thread that trains calls it or waits for the backward."""
        is_waiting = self._open is not None and self._open.stage is Stage.BACKWARD_COMPUTE
        if (is_waiting or self._is_on_thread()) and not self._is_off and self._steps.current is not None:
            self._optimizers.has_stepped = True
            self._steps.current.has_stepped()

    def _follows(self) -> bool:
        return self._open is None and self._is_on_thread() and self._may_see()

    def _is_on_thread(self) -> bool:
        return not self._is_off and self.thread == get_ident()

    def _may_see(self) -> bool:
        return self._recorder.recording() and not is_capturing(self._recorder)

    def _user_times(self) -> bool:
        """Whether a span of the user other than a step is open, or the time is between two steps of the user."""
        recorder = self._recorder
        if not self._steps.are_of_user():
            return recorder.depth != 0
        in_own_step = recorder.words[layout.WORD_OPEN_SINCE + Stage.STEP] != 0
        return not in_own_step or recorder.depth != 1

    def _begin(
        self, stage: Stage, microbatch: int = -1, chunk: int = -1, after: InferredSpan | None = None
    ) -> InferredSpan | None:
        if self._user_times():
            return None
        self._open, self.is_busy = InferredSpan(self._recorder, stage, microbatch, chunk, after), True
        return self._open

    def _finish_open(self) -> None:
        self._open, self.is_busy = None, self._is_off

    def _end_loss(self) -> InferredSpan | None:
        """End the forward span of the loss, because a backward begins. Returns the span, if it is recorded."""
        loss, self._loss = self._loss, None
        if loss is None:
            return None
        span, num_operations = loss
        if num_operations != self._count_operations():
            span.discard()
            return None
        span.end(self._steps.number())
        return span

    def _drop_loss(self) -> None:
        loss, self._loss = self._loss, None
        if loss is not None:
            loss[0].discard()

    def _pause_optimizer(self) -> None:
        """Interrupt the optimizer's span: the forward and backward of its closure are not part of it."""
        self._optimizers.see_call()
        if self._optimizer is not None:
            self._optimizer.discard()
            self._optimizer = None

    def _resume_optimizer(self) -> None:
        if self._optimizers.are_stepping and self._optimizer is None and self._may_see() and not self._user_times():
            self._optimizer = InferredSpan(self._recorder, Stage.OPTIMIZER)
