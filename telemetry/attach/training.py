"""What a training loop does, inferred from calls into torch.

    load  forward backward  load  forward backward  optimizer  (logging)  load  forward ...
    |---- step 0 ---------------------------------------------------------|---- step 1 ...

A step begins with its first data load, forward or backward. It ends when the next one begins, or with an evaluation or
a checkpoint after it. Its optimizer must have stepped in between, so gradient accumulation stays one step.

- The optimizer that stepped first ends every step. Others are spans in it. One that is gone is replaced.
- A compiled optimizer calls no hook. Then its next ``zero_grad`` after a backward shows that it has stepped.
- A data load counts once a forward with gradients follows. Loads for an evaluation belong to no step.
- Only the outermost call counts: a submodule, or the recomputation of activations in a backward, is no forward.
- From the end of a forward to its backward the loss is computed. This is a second forward span, unless a collective or
  a transfer was issued in between.
- A span of the user wins: while one is open, nothing is inferred. With steps of the user no step is inferred.

Hooks call these methods on any thread. Only the thread that trains is followed. The methods may raise: their callers
count the error (``own_errors.py``).
"""

import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from typing import Any

from telemetry.attach.inferred_span import InferredSpan, is_capturing
from telemetry.record import layout
from telemetry.record.recorder import Recorder
from telemetry.record.spans import STEP_INTERRUPTED
from telemetry.stages import Stage

COMPILED_GRAPHS = "compiled-graphs"
"""Sample: graphs that torch.compile has compiled so far. Recorded when the number changes."""
MAX_OTHER_STEPS = 10
"""After so many steps of another optimizer in a row, it ends the steps."""


class Step:
    """A step under way."""

    __slots__ = ("before", "confirmed", "loads", "num_backwards", "number", "span", "stepped_ns")

    def __init__(self, number: int, span: InferredSpan, before: tuple[int, int]) -> None:
        self.number, self.span, self.before = number, span, before
        """``before``: the step numbers of the recorder and of the state page before it."""
        self.confirmed = False
        """Whether it trains. Until then it may turn out to be an evaluation."""
        self.loads: list[InferredSpan] = []
        """Data loads that wait for that."""
        self.num_backwards = 0
        self.stepped_ns = 0
        """When its optimizer had stepped; 0: not yet."""


class Training:
    """Follows the training loop of this process."""

    def __init__(self, recorder: Recorder, count_operations: Callable[[], int] = lambda: 0) -> None:
        self._recorder = recorder
        self._count_operations = count_operations
        self.is_busy = False
        """Whether calls need not be looked at: they are inside one that counts, or nothing is followed any more."""
        self.place: tuple[int, int] | None = None
        """Microbatch and chunk (or -1) of the next forward, if a framework says so."""
        self._is_off = False
        self._thread = get_ident()
        self._thread_is_known = False
        self._step: Step | None = None
        self._next_number = 0
        self._own_steps = False
        self._own_backwards = 0, 0
        """Begin of the user's newest step with a backward, and the number of its backwards."""
        self._open: InferredSpan | None = None
        """The outermost load, forward, backward, evaluation or checkpoint."""
        self._loss: tuple[InferredSpan, int] | None = None
        """Begun at the end of a forward, and the number of operations then."""
        self._optimizer: InferredSpan | None = None
        self._stepping: list[int] = []
        """Ids of what is stepping: a scaler or an optimizer around others, the outermost first."""
        self._closer: weakref.ref[Any] | None = None
        self._num_others = 0
        self._has_hooks = False
        """Whether an optimizer has called a hook."""
        self._num_graphs = 0

    def switch_off(self) -> None:
        """Follow nothing any more: in a forked child, and after too many errors."""
        self._is_off = self.is_busy = True

    def begin_load(self) -> InferredSpan | None:
        """The result, if any, is for :meth:`end_load`."""
        if not self._follows():
            return None
        self._drop_loss()
        self._enter_step()
        return self._begin(Stage.DATA_LOAD)

    def end_load(self, span: InferredSpan, *, completed: bool) -> None:
        """``completed`` False: the data ended, or loading failed."""
        self._finish_open()
        step = self._step
        if not completed:
            span.discard()
            if step is not None and not step.confirmed and not step.loads:
                self._forget_step()
        elif step is None or step.confirmed:
            span.end(self._number())
        else:
            span.finish()
            step.loads.append(span)

    def begin_forward(self, *, with_grad: bool) -> InferredSpan | None:
        """The result, if any, is for :meth:`end_call`. Without gradients it is an evaluation."""
        if not self._follows():
            return None
        self._drop_loss()
        self._pause_optimizer()
        if with_grad:
            self._enter_step(confirm=True)
            return self._begin(Stage.FORWARD_COMPUTE, *(self.place or (self._microbatch(), -1)))
        self._leave_step()
        return self._begin(Stage.EVALUATION)

    def begin_backward(self) -> InferredSpan | None:
        """The result, if any, is for :meth:`end_call`."""
        if not self._follows():
            return None
        self._pause_optimizer()
        loss = self._end_loss()
        self._enter_step(confirm=True)
        microbatch = self._microbatch()
        if self._step is not None:
            self._step.num_backwards += 1
        elif microbatch >= 0:
            self._own_backwards = self._recorder.words[layout.WORD_STEP_STARTED], microbatch + 1
        return self._begin(Stage.BACKWARD_COMPUTE, microbatch, after=loss)

    def begin_chunk(self, stage: Stage, microbatch: int, chunk: int) -> InferredSpan | None:
        """A forward or backward of a pipeline. The result, if any, is for :meth:`end_call`."""
        if not self._follows():
            return None
        self._drop_loss()
        self._enter_step(confirm=True)
        return self._begin(stage, microbatch, chunk)

    def begin_checkpoint(self, stage: Stage) -> InferredSpan | None:
        """``stage``: checkpoint-write, or checkpoint-snapshot if another thread writes. The result, if any, is for
        :meth:`end_call`."""
        if not self._follows():
            return None
        self._drop_loss()
        self._leave_step()
        return self._begin(stage)

    def end_call(self, span: InferredSpan, *, completed: bool) -> None:
        """``completed`` False: the call raised. Its span is not recorded."""
        self._finish_open()
        if completed:
            span.end(self._number())
        else:
            span.discard()
        if span.stage is Stage.FORWARD_COMPUTE and completed and span.chunk < 0:
            loss = InferredSpan(self._recorder, Stage.FORWARD_COMPUTE, span.microbatch, after=span)
            self._loss = loss, self._count_operations()
        self._resume_optimizer()

    def begin_optimizer(
        self, who: Any, *, with_closure: bool = False, steps_done: Callable[[], int | None] | None = None
    ) -> None:
        """An optimizer, or the scaler around it, begins to step. ``steps_done``: how many steps it has made before,
        for the number of the first step of this process."""
        if not self._thread_is_known:
            self._thread, self._thread_is_known = get_ident(), True
        if not self._is_on_thread():
            return
        if id(who) in self._stepping:
            self._stepping = []  # it raised the last time
        self._stepping.append(id(who))
        if len(self._stepping) > 1:
            return
        self._drop_loss()
        if self._step is None or (with_closure and self._step.stepped_ns):
            self._enter_step(confirm=True)
        if self._closer is None and steps_done is not None:
            self._renumber(steps_done())
        if self._open is None and self._may_see() and not self._user_times():
            self._optimizer = InferredSpan(self._recorder, Stage.OPTIMIZER)

    def end_optimizer(self, who: Any, optimizer: Any) -> None:
        """The optimizer has stepped, or the scaler has skipped its step."""
        if not self._is_on_thread() or id(who) not in self._stepping:
            return
        self._has_hooks = True
        del self._stepping[self._stepping.index(id(who)) :]
        if self._stepping:
            return
        span, self._optimizer = self._optimizer, None
        if span is not None:
            span.end(self._number())
        if self._ends_steps(optimizer) and self._step is not None:
            self._step.confirmed = True
            self._step.stepped_ns = monotonic_ns()

    def see_zero_grad(self, optimizer: Any) -> None:
        """An optimizer is about to clear its gradients."""
        step = self._step
        if self._has_hooks or step is None or not step.num_backwards or step.stepped_ns or not self._is_on_thread():
            return
        if self._ends_steps(optimizer):
            step.stepped_ns = monotonic_ns()

    def count_from(self, number: int) -> None:
        """The next step has this number: of a loop that knows its numbers."""
        if not self._is_on_thread():
            return
        if self._step is not None and self._step.stepped_ns:
            self._close_step(self._step)
        self._next_number = number
        self._renumber(number)

    def see_step(self, owner: Any, num_steps: int) -> None:
        """An object that steps its optimizers itself has ended a step, its ``num_steps``-th. The step counts also if no
        optimizer stepped. Such an object ends all steps from now on."""
        if not self._is_on_thread():
            return
        self._closer, self._num_others = weakref.ref(owner), 0
        if self._step is not None:
            self._step.confirmed = True
            self._step.stepped_ns = monotonic_ns()
            self._renumber(num_steps - 1)

    def end(self, *, failed: bool) -> None:
        """The recording ends. The last step ended when its optimizer had stepped."""
        self._drop_loss()
        step, self._step = self._step, None
        if step is None or self._is_off:
            return
        step.span.finish(step.stepped_ns or None)
        if step.stepped_ns:
            step.span.record(step.number)
        elif failed and step.confirmed:
            self._recorder.mark(STEP_INTERRUPTED)
        self._next_number = step.number + 1

    # The steps.

    def _enter_step(self, *, confirm: bool = False) -> None:
        """There is a step from now on, if the user records none."""
        if self._user_counts_steps():
            return
        if self._step is not None and self._step.stepped_ns:
            self._close_step(self._step)
        if self._step is None:
            before = self._recorder.step_number, self._recorder.words[layout.WORD_STEP]
            self._recorder.begin_step(self._next_number)
            self._step = Step(self._next_number, InferredSpan(self._recorder, Stage.STEP), before)
        if confirm and not self._step.confirmed:
            self._step.confirmed = True
            for load in self._step.loads:
                load.record(self._step.number)
            self._step.loads = []

    def _leave_step(self) -> None:
        """A checkpoint or an evaluation begins: the step before it has ended, or has not begun. It may lie within a
        step, too."""
        if self._user_counts_steps() or self._step is None:
            return
        if self._step.stepped_ns:
            self._close_step(self._step)
        elif not self._step.confirmed:
            self._forget_step()

    def _close_step(self, step: Step) -> None:
        step.span.end(step.number)
        self._next_number = step.number + 1
        self._step = None
        self._sample_graphs()

    def _forget_step(self) -> None:
        if self._step is not None:
            self._step.span.discard()
            self._recorder.step_number, self._recorder.words[layout.WORD_STEP] = self._step.before
            self._step = None

    def _renumber(self, steps_done: int | None) -> None:
        """Continue the count of an optimizer or an engine that was loaded from a checkpoint."""
        if steps_done and self._step is not None and not self._user_counts_steps():
            self._step.number = steps_done
            self._recorder.step_number = self._recorder.words[layout.WORD_STEP] = steps_done

    def _user_counts_steps(self) -> bool:
        if not self._own_steps and self._recorder.last_begun(Stage.STEP):
            self._own_steps = True
            if self._step is not None:
                self._step = None  # the user's step uses its word on the state page
        return self._own_steps

    def _number(self) -> int:
        return self._recorder.step_number if self._step is None else self._step.number

    def _microbatch(self) -> int:
        """The number of backwards in this step so far; -1: there is no step."""
        if self._step is not None:
            return self._step.num_backwards
        if not self._own_steps:
            return -1
        begun, num_backwards = self._own_backwards
        return num_backwards if begun == self._recorder.words[layout.WORD_STEP_STARTED] else 0

    def _ends_steps(self, optimizer: Any) -> bool:
        """Whether this optimizer ends the steps: the first one, until it is gone or does not step any more."""
        closer = None if self._closer is None else self._closer()
        if closer is optimizer:
            self._num_others = 0
            return True
        self._num_others += 1
        if closer is None or self._num_others >= MAX_OTHER_STEPS:
            self._closer, self._num_others = weakref.ref(optimizer), 0
            return True
        return False

    def _sample_graphs(self) -> None:
        """Graphs that torch.compile has compiled: more of them in a later step are recompilations."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is None:
            return
        num_graphs = dynamo.counters["stats"]["unique_graphs"]
        if num_graphs != self._num_graphs:
            self._num_graphs = num_graphs
            self._recorder.sample(COMPILED_GRAPHS, num_graphs)

    # What is followed.

    def _follows(self) -> bool:
        return self._open is None and self._is_on_thread() and self._may_see()

    def _is_on_thread(self) -> bool:
        return not self._is_off and self._thread == get_ident()

    def _may_see(self) -> bool:
        return self._recorder.recording() and not is_capturing(self._recorder)

    def _user_times(self) -> bool:
        """Whether a span of the user other than a step is open, or the time between two steps of the user."""
        recorder = self._recorder
        if not self._user_counts_steps():
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
        """A backward begins: what the rank did since the forward was the loss. Returns its span, if it is recorded."""
        loss, self._loss = self._loss, None
        if loss is None:
            return None
        span, num_operations = loss
        if num_operations != self._count_operations():
            span.discard()
            return None
        span.end(self._number())
        return span

    def _drop_loss(self) -> None:
        loss, self._loss = self._loss, None
        if loss is not None:
            loss[0].discard()

    def _pause_optimizer(self) -> None:
        """The optimizer calls a closure: its forward and backward are no part of the optimizer's span."""
        if self._optimizer is not None:
            self._optimizer.discard()
            self._optimizer = None

    def _resume_optimizer(self) -> None:
        if self._stepping and self._optimizer is None and self._may_see() and not self._user_times():
            self._optimizer = InferredSpan(self._recorder, Stage.OPTIMIZER)
