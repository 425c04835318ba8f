"""The steps of a training loop, inferred from its calls.

    load  forward backward  load  forward backward  optimizer  (logging)  load  forward ...
    |---- step 0 ---------------------------------------------------------|---- step 1 ...

A step begins with its first data load, forward or backward. It ends when the next step begins, or with an evaluation or
a checkpoint after it. It cannot end before its optimizer has stepped, so gradient accumulation stays one step.

- A data load is recorded if a forward with gradients follows. Loads for an evaluation belong to no step.
- If the user records steps, no step is inferred.
"""

import sys
from collections import deque
from time import monotonic_ns

from telemetry.attach.inferred_span import InferredSpan
from telemetry.record import layout
from telemetry.record.recorder import Recorder
from telemetry.record.spans import STEP_INTERRUPTED
from telemetry.stages import Stage

COMPILED_GRAPHS = "compiled-graphs"
"""Name of a sample: the number of graphs that torch.compile has compiled so far. Recorded when it changes."""
MAX_LOADS = 1024
"""Data loads that are kept for a step that is not confirmed. A script may read all its data and not train."""
MAX_MICROBATCH = (1 << 15) - 1
"""A record has no room for larger numbers."""


class Step:
    """A step that has begun."""

    __slots__ = ("before", "is_confirmed", "loads", "num_backwards", "number", "span", "stepped_ns")

    def __init__(self, number: int, span: InferredSpan, before: tuple[int, int]) -> None:
        self.number, self.span, self.before = number, span, before
        """``before``: the step numbers of the recorder and of the state page before it."""
        self.is_confirmed = False
        """Whether the step is known to train. Until then it may be an evaluation."""
        self.loads: deque[InferredSpan] = deque(maxlen=MAX_LOADS)
        """Data loads that are recorded once the step is confirmed."""
        self.num_backwards = 0
        self.stepped_ns = 0
        """When its optimizer had stepped; 0 if it has not stepped yet."""

    def has_stepped(self) -> None:
        """An optimizer that ends steps has stepped now."""
        self.is_confirmed = True
        self.stepped_ns = monotonic_ns()


class Steps:
    """The steps of this process."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.current: Step | None = None
        self._next_number = 0
        self._are_of_user = False
        self._backwards_of_user = 0, 0
        """Begin of the user's newest step with a backward, and the number of its backwards."""
        self._num_graphs = 0

    def enter(self, *, confirm: bool = False) -> None:
        """Begin a step if none is open, unless the user records steps. ``confirm``: the step trains."""
        if self.are_of_user():
            return
        if self.current is not None and self.current.stepped_ns:
            self._close(self.current)
        if self.current is None:
            before = self._recorder.step_number, self._recorder.words[layout.WORD_STEP]
            self._recorder.begin_step(self._next_number)
            self.current = Step(self._next_number, InferredSpan(self._recorder, Stage.STEP), before)
        if confirm and not self.current.is_confirmed:
            self.current.is_confirmed = True
            while self.current.loads:
                self.current.loads.popleft().record(self.current.number)

    def leave(self) -> None:
        """A checkpoint or an evaluation begins. It lies between two steps, or within a confirmed step."""
        if self.are_of_user() or self.current is None:
            return
        if self.current.stepped_ns:
            self._close(self.current)
        elif not self.current.is_confirmed:
            self._forget()

    def add_load(self, span: InferredSpan) -> None:
        """A data load has ended."""
        if self.current is None or self.current.is_confirmed:
            span.end(self.number())
        else:
            span.finish()
            self.current.loads.append(span)

    def without_load(self) -> None:
        """There was no data to load. A step that only waited for data did not begin."""
        if self.current is not None and not self.current.is_confirmed and not self.current.loads:
            self._forget()

    def renumber(self, steps_done: int | None) -> None:
        """Number the current step after ``steps_done`` steps of an optimizer or engine that a checkpoint restored."""
        if steps_done and self.current is not None and not self.are_of_user():
            self.current.number = steps_done
            self._recorder.step_number = self._recorder.words[layout.WORD_STEP] = steps_done

    def count_from(self, number: int) -> None:
        """The next step has this number."""
        if self.current is not None and self.current.stepped_ns:
            self._close(self.current)
        self._next_number = number
        self.renumber(number)

    def are_of_user(self) -> bool:
        """Whether the user records steps."""
        if not self._are_of_user and self._recorder.last_begun(Stage.STEP):
            self._are_of_user = True
            self.current = None  # the user's step uses its word on the state page
        return self._are_of_user

    def number(self) -> int:
        """The number of the step that is recorded now."""
        return self._recorder.step_number if self.current is None else self.current.number

    def microbatch(self) -> int:
        """The microbatch of the next forward or backward: the number of backwards in this step so far; -1 if none."""
        if self.current is not None:
            return min(self.current.num_backwards, MAX_MICROBATCH)
        if not self._are_of_user:
            return -1
        begun, num_backwards = self._backwards_of_user
        is_same_step = begun == self._recorder.words[layout.WORD_STEP_STARTED]
        return min(num_backwards, MAX_MICROBATCH) if is_same_step else 0

    def add_backward(self) -> int:
        """A backward begins. Returns its microbatch."""
        microbatch = self.microbatch()
        if self.current is not None:
            self.current.num_backwards += 1
        elif microbatch >= 0:
            self._backwards_of_user = self._recorder.words[layout.WORD_STEP_STARTED], microbatch + 1
        return microbatch

    def end(self, *, failed: bool) -> None:
        """The recording ends. The last step ended when its optimizer had stepped."""
        step, self.current = self.current, None
        if step is None:
            return
        step.span.finish(step.stepped_ns or None)
        if step.stepped_ns:
            step.span.record(step.number)
        elif failed and step.is_confirmed:
            self._recorder.mark(STEP_INTERRUPTED)
        self._next_number = step.number + 1

    def _close(self, step: Step) -> None:
        step.span.end(step.number)
        self._next_number = step.number + 1
        self.current = None
        self._sample_graphs()

    def _forget(self) -> None:
        if self.current is not None:
            self.current.span.discard()
            self._recorder.step_number, self._recorder.words[layout.WORD_STEP] = self.current.before
            self.current = None

    def _sample_graphs(self) -> None:
        """Sample the number of compiled graphs if it changed. More graphs in a later step are recompilations."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is None:
            return
        num_graphs = dynamo.counters["stats"]["unique_graphs"]
        if num_graphs != self._num_graphs:
            self._num_graphs = num_graphs
            self._recorder.sample(COMPILED_GRAPHS, num_graphs)
