"""What a training framework reports about its loop. Adapters turn callbacks of a framework into these calls.

    begin_step(0)                        end_step(0)  begin_stage(EVALUATION)   end_stage(EVALUATION)
    |---- step 0: load forward backward -|            |------ evaluation -------|---- step 1: load ...

An adapter calls :func:`follow` once it knows its rank, and then methods of :data:`LOOP`. Everything else (data loads,
forward, backward, optimizer, collectives) is inferred from calls into torch, as in an attached process, within the
steps of the framework. A stage that the adapter reports is not inferred.

- Most frameworks load the first batch before they report a step. Such an adapter begins the next step as soon as one
  has ended. An evaluation or a checkpoint that begins then is not part of that step: the step begins again after it.
- Two adapters may report the same steps. A step with the same number is recorded once.
- If a second training in this process begins at a lower number, its steps are numbered after the newest step.
- Methods are called by the thread that trains. They do not raise, block or synchronise. Without a session they do
  nothing. Methods of an adapter do the same if they are :func:`harmless`.
"""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec

from telemetry.attach.adapters.imported import install_adapters
from telemetry.attach.deciding import forbids_recording
from telemetry.attach.own_errors import OwnErrors
from telemetry.attach.rank import become_rank
from telemetry.record import layout
from telemetry.record.recorder import Recorder, Span
from telemetry.record.recording import RECORDER, before_end, is_failing
from telemetry.record.session import current_session
from telemetry.record.spans import STEP_INTERRUPTED, HostSpan
from telemetry.stages import Stage

ADAPTER = "adapter"
"""Name of the mark of an adapter that is used. Its text is the framework and its version."""
BETWEEN_STEPS = frozenset((Stage.EVALUATION, Stage.CHECKPOINT_SNAPSHOT, Stage.CHECKPOINT_WRITE))
METRIC_NAMES = {"grad_norm": "gradient-norm", "lr": "learning-rate"}
"""Name in frameworks -> name that detectors and pages use."""
LOSS_NAMES = frozenset(("train_loss", "train_loss_step", "train/loss", "train/loss_step", "loss_step"))
"""Names that scripts give to the loss of a training step."""
Arguments = ParamSpec("Arguments")


class Loop:
    """The training loop of this process. All methods may be called in any order."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._errors = OwnErrors(self.switch_off)
        self._is_off = False
        self._step: Span | None = None
        self._number = -1
        """The number of the open step, as the adapter counts."""
        self._offset = 0
        """Recorded number minus the adapter's number. Not 0 after an earlier training in this process."""
        self._next_number = 0
        """The lowest number that the next step can have in the recording."""
        self._before = (0, 0)
        """The step numbers of the recorder and of the state page before the open step."""
        self._stages: list[tuple[Stage, Span | None]] = []
        """Open stages, the outermost first. The span is None if the stage is inside the same stage: not recorded."""
        self._again: int | None = None
        """The step that begins again after the open stage."""

    def begin_step(self, number: int) -> None:
        """Step ``number`` begins now. If another step is open, that step is not recorded."""
        self._guard(self._begin_step, number)

    def end_step(self, number: int, *, completed: bool = True) -> None:
        """Step ``number`` ends now, if it is open. If ``completed`` is False, it is not recorded, because it had not
        really begun or is repeated."""
        self._guard(self._end_step, number, completed)

    def begin_stage(self, stage: Stage, microbatch: int = -1) -> None:
        """A stage begins now. Stages nest. A stage inside the same stage is not recorded. Evaluations and checkpoints
        lie between steps: see the module."""
        self._guard(self._begin_stage, stage, microbatch)

    def end_stage(self, stage: Stage, *, completed: bool = True) -> None:
        """A stage ends now, if it is open. Open stages inside it are not recorded. If ``completed`` is False, the stage
        is not recorded either."""
        self._guard(self._end_stage, stage, completed)

    def sample(self, values: Mapping[str, object], step: int | None = None) -> None:
        """Record the numbers in ``values``, under the names of rankscope: ``grad_norm`` is ``gradient-norm``. Other
        values are ignored, also tensors that are not in the memory of the host: reading them would wait for the
        device. If ``step`` is None, the current step is used."""
        self._guard(self._sample, values, step)

    def end(self) -> None:
        """End with the session. An open step is not recorded. If the process fails, it is marked as interrupted."""
        if self._step is not None and is_failing():
            self._recorder.mark(STEP_INTERRUPTED)
        self._drop_stages()
        self._drop_step()

    def switch_off(self) -> None:
        """Record nothing any more. Called after too many errors."""
        self._is_off = True
        self._drop_stages()
        self._drop_step()

    def report(self, error: Exception) -> None:
        """Count an error of an adapter. Never raises."""
        self._errors.add(error)

    def _guard(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._is_off or not self._recorder.recording():
            return
        try:
            function(*arguments)
        except Exception as error:
            self._errors.add(error)

    def _begin_step(self, number: int) -> None:
        if self._step is not None and self._number == number:
            return
        self._drop_stages()
        self._drop_step()
        self._before = self._recorder.step_number, self._recorder.words[layout.WORD_STEP]
        self._number = number
        self._offset += max(0, self._next_number - number - self._offset)
        self._step = _entered(self._recorder.step(number + self._offset))

    def _end_step(self, number: int, completed: bool) -> None:
        self._again = None if self._again == number else self._again
        if self._step is None or self._number != number:
            return
        self._drop_stages()
        if not completed:
            return self._drop_step()
        step, self._step = self._step, None
        step.__exit__(None, None, None)
        self._next_number = number + self._offset + 1

    def _begin_stage(self, stage: Stage, microbatch: int) -> None:
        if stage in BETWEEN_STEPS and self._step is not None:
            self._drop_stages()
            self._again = self._number
            self._drop_step()
        is_inside = any(stage is open_stage for open_stage, _ in self._stages)
        span = None if is_inside else _entered(self._recorder.span(stage, microbatch=microbatch))
        self._stages.append((stage, span))

    def _end_stage(self, stage: Stage, completed: bool) -> None:
        if all(stage is not open_stage for open_stage, _ in self._stages):
            return
        while self._stages:
            open_stage, span = self._stages.pop()
            if open_stage is stage and completed and span is not None:
                span.__exit__(None, None, None)
            else:
                _discard(span)
            if open_stage is stage:
                break
        if not self._stages and self._again is not None:
            number, self._again = self._again, None
            self._begin_step(number)

    def _sample(self, values: Mapping[str, object], step: int | None) -> None:
        of_step = None if step is None else step + self._offset
        for name, value in values.items():
            if (number := _number_of(value)) is not None:
                self._recorder.sample(METRIC_NAMES.get(name, name.replace("_", "-")), number, of_step)

    def _drop_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            _discard(step)
            self._recorder.step_number, self._recorder.words[layout.WORD_STEP] = self._before

    def _drop_stages(self) -> None:
        while self._stages:
            _discard(self._stages.pop()[1])
        self._again = None


def _entered(span: Span) -> Span:
    span.__enter__()
    return span


def _discard(span: Span | None) -> None:
    """End a span without a record."""
    if isinstance(span, HostSpan):
        span.closes()


def _number_of(value: object) -> float | None:
    """The number in ``value``: a number, or an array or tensor of one element in host memory. Otherwise None."""
    if isinstance(value, int | float):
        return float(value)
    if getattr(getattr(value, "device", None), "type", "cpu") != "cpu":
        return None
    item = getattr(value, "item", None)
    size = getattr(value, "size", None)
    if item is None or (size() if callable(size) else size) not in (1, (), (1,)):
        return None
    number = item()
    return float(number) if isinstance(number, int | float) else None


LOOP = Loop(RECORDER)
"""The loop of this process."""
before_end(LOOP.end)


def follow(framework: str, rank: int, world_size: int) -> None:
    """Record this process as one rank of a job. Starts a recording session if there is none and :func:`may_record`
    allows it. Never raises.

    Args:
        framework: its name and version, for the mark ``adapter``.
        rank: of this process in the job.
        world_size: number of ranks of the job.
    """
    try:
        if not may_record():
            return
        become_rank(rank, world_size, waits=False)
        install_adapters()
        RECORDER.mark(ADAPTER, framework)
    except Exception as error:
        LOOP.report(error)


def with_loss(values: Mapping[str, object]) -> dict[str, object]:
    """Numbers that a script logs in a training step, with its loss under the name ``loss``."""
    return {"loss" if name in LOSS_NAMES else name: value for name, value in values.items()}


def may_record() -> bool:
    """Whether a session records, or one may be started: this process never had one, and no variable forbids it."""
    session = current_session()
    return session.recording or (session.identity is None and not forbids_recording(os.environ))


def harmless(method: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """A callback of a framework that does not raise. Its errors are counted and reported."""

    @wraps(method)
    def run(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> None:
        try:
            method(*arguments, **keywords)
        except Exception as error:
            LOOP.report(error)

    return run
