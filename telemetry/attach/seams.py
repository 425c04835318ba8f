"""The places in torch where a training loop is seen. Each is replaced once, when the process becomes a rank.

nn.Module.__call__                forward, evaluation          DataLoader's iterators    data load
torch.autograd.backward           backward                     torch.save                checkpoint
pipelining: *_one_chunk           forward, backward            distributed.checkpoint    checkpoint, once it is imported
hooks of optimizers, GradScaler   optimizer, steps

Every replacement calls the original with the same arguments, and returns or raises what it does.

torch.compile traces through ``Module.__call__`` and must not see our bookkeeping. ``is_compiling()`` is a constant
there, so the traced code is that of torch. Frames of ours are marked as not to be compiled by themselves
(:func:`skip_in_dynamo`). torch has global hooks of modules, too. They are not used: they break graphs, and make
``torch.compile`` warn at each call.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from types import FunctionType
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.fx import GraphModule
from torch.utils.data.dataloader import _BaseDataLoaderIter

from telemetry.attach.inferred_span import InferredSpan
from telemetry.attach.own_errors import OwnErrors
from telemetry.attach.step_hooks import STEP_HOOKS, StepHooks
from telemetry.attach.training import Training
from telemetry.stages import Stage

Function = Callable[..., Any]
Begin = Callable[[], InferredSpan | None]
is_compiling = torch.compiler.is_compiling
REPLACED = "replaced_by_rankscope"
CHECKPOINT = "torch.distributed.checkpoint"
CHECKPOINT_MODULES = (CHECKPOINT, f"{CHECKPOINT}.state_dict_saver")
PIPELINING = "torch.distributed.pipelining.stage"
STAGES_OF_CHUNKS = {
    "forward_one_chunk": Stage.FORWARD_COMPUTE,
    "backward_one_chunk": Stage.BACKWARD_COMPUTE,
    "backward_weight_one_chunk": Stage.BACKWARD_COMPUTE,
}
STAGES_OF_SAVES = {"save": Stage.CHECKPOINT_WRITE, "async_save": Stage.CHECKPOINT_SNAPSHOT}


class Seams:
    """Connects torch to a :class:`Training`."""

    def __init__(self, training: Training, errors: OwnErrors) -> None:
        self.training = training
        self._errors = errors

    def install(self) -> list[str]:
        """Replace what this torch has. Returns the names of what it does not have."""
        parts: dict[str, Callable[[], None]] = {
            "forward": self._see_forwards,
            "backward": self._see_backwards,
            "optimizer": self._see_optimizers,
            "data-load": self._see_loads,
            "checkpoint": self._see_saves,
        }
        missing = []
        for name, see in parts.items():
            try:
                see()
            except Exception:
                missing.append(name)
        self.see_imported()
        skip_own_frames()
        return missing

    def see_imported(self) -> None:
        """Replace functions of modules that were imported since. Cheap: called at each step. Never raises."""
        if (pipelining := sys.modules.get(PIPELINING)) is not None:
            with suppress(Exception):
                self._see_chunks(pipelining)
        for name in CHECKPOINT_MODULES:
            if (module := sys.modules.get(name)) is not None:
                for function, stage in STAGES_OF_SAVES.items():
                    with suppress(Exception):
                        self._see_save(module, function, stage)

    def _see_forwards(self) -> None:
        plain, _ = torch.nn.Module.__call__, torch.nn.Module._call_impl  # both must exist
        training, guarded = self.training, self._guarded

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or training.is_busy:
                compiled: Function | None = self._compiled_call_impl
                return self._call_impl(*args, **kwargs) if compiled is None else compiled(*args, **kwargs)
            with_grad = torch.is_grad_enabled()
            if not with_grad and isinstance(self, GraphModule):
                return plain(self, *args, **kwargs)  # part of a compiled function, which has its own backward
            begin = partial(training.begin_forward, with_grad=with_grad)
            return guarded(begin, plain, (self, *args), kwargs)

        replace(torch.nn.Module, "__call__", __call__)

    def _see_backwards(self) -> None:
        self.surround(torch.autograd, "backward", self.training.begin_backward)

    def _see_optimizers(self) -> None:
        training, errors = self.training, self._errors

        def before(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                self.see_imported()
                with_closure = len(args) > 1 or kwargs.get("closure") is not None
                training.begin_optimizer(
                    optimizer, with_closure=with_closure, steps_done=partial(steps_done, optimizer)
                )
            except Exception as error:
                errors.add(error)

        def after(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                training.end_optimizer(optimizer, optimizer)
            except Exception as error:
                errors.add(error)

        STEP_HOOKS.before, STEP_HOOKS.after = before, after
        self._see_zero_grads()
        self._see_scalers()

    def _see_zero_grads(self) -> None:
        training, errors, plain = self.training, self._errors, torch.optim.Optimizer.zero_grad

        @wraps(plain)
        def zero_grad(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            if not is_compiling():
                try:
                    training.see_zero_grad(self)
                except Exception as error:
                    errors.add(error)
            plain(self, *args, **kwargs)

        replace(torch.optim.Optimizer, "zero_grad", zero_grad)

    def _see_scalers(self) -> None:
        """A scaler skips the step of its optimizer if a gradient is infinite. This ends a step, too."""
        training, errors, plain = self.training, self._errors, GradScaler.step

        @wraps(plain)
        def step(self: GradScaler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                training.begin_optimizer(self, with_closure=bool(args or kwargs))
            except Exception as error:
                errors.add(error)
            answer = plain(self, optimizer, *args, **kwargs)
            try:
                training.end_optimizer(self, optimizer)
            except Exception as error:
                errors.add(error)
            return answer

        replace(GradScaler, "step", step)

    def _see_loads(self) -> None:
        plain = _BaseDataLoaderIter.__next__
        training, errors = self.training, self._errors

        @wraps(plain)
        def __next__(self: Any) -> Any:
            span = None if training.is_busy else _begun(training.begin_load, errors)
            if span is None:
                return plain(self)
            completed = False
            try:
                batch = plain(self)
                completed = True
                return batch
            finally:
                try:
                    training.end_load(span, completed=completed)
                except Exception as error:
                    errors.add(error)

        replace(_BaseDataLoaderIter, "__next__", __next__)

    def _see_saves(self) -> None:
        self._see_save(torch, "save", Stage.CHECKPOINT_WRITE)

    def _see_save(self, module: Any, name: str, stage: Stage) -> None:
        self.surround(module, name, partial(self.training.begin_checkpoint, stage))

    def _see_chunks(self, pipelining: Any) -> None:
        """A microbatch of a pipeline. Its number and its chunk are the arguments of the schedule."""
        for name, stage in STAGES_OF_CHUNKS.items():
            self._see_chunk(pipelining._PipelineStageBase, name, stage)

    def _see_chunk(self, owner: Any, name: str, stage: Stage) -> None:
        plain = getattr(owner, name)
        if hasattr(plain, REPLACED):
            return
        training, guarded = self.training, self._guarded

        @wraps(plain)
        def run(self: Any, chunk_id: int, *args: Any, **kwargs: Any) -> Any:
            if training.is_busy:
                return plain(self, chunk_id, *args, **kwargs)
            begin = partial(training.begin_chunk, stage, chunk_id, self.stage_index // self.group_size)
            return guarded(begin, plain, (self, chunk_id, *args), kwargs)

        replace(owner, name, run)

    def surround(self, owner: Any, name: str, begin: Begin) -> None:
        """Call ``begin`` before a function, and end its span after it. Once for each function.

        Raises:
            AttributeError: there is no such function.
        """
        plain = getattr(owner, name)
        if hasattr(plain, REPLACED):
            return
        training, guarded = self.training, self._guarded

        @wraps(plain)
        def run(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or training.is_busy:
                return plain(*args, **kwargs)
            return guarded(begin, plain, args, kwargs)

        replace(owner, name, run)

    def _guarded(self, begin: Begin, plain: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the original within a span."""
        span = _begun(begin, self._errors)
        if span is None:
            return plain(*args, **kwargs)
        completed = False
        try:
            answer = plain(*args, **kwargs)
            completed = True
            return answer
        finally:
            try:
                self.training.end_call(span, completed=completed)
            except Exception as error:
                self._errors.add(error)


def _begun(begin: Begin, errors: OwnErrors) -> InferredSpan | None:
    try:
        return begin()
    except Exception as error:
        errors.add(error)
        return None


def replace(owner: Any, name: str, function: Function) -> None:
    """Put a function in the place of another one."""
    setattr(function, REPLACED, True)
    skip_in_dynamo(function)
    setattr(owner, name, function)


def skip_in_dynamo(function: Function, *, with_callees: bool = False) -> None:
    """Let torch.compile start no graph at this function. What it calls is compiled as without it, or not at all. In a
    version of torch that has no such setting, nothing happens."""
    with suppress(Exception):
        from torch._C._dynamo import eval_frame  # noqa: PLC0415  (private)

        action = eval_frame._FrameAction
        of_callees = action.SKIP if with_callees else action.DEFAULT
        strategy = eval_frame._FrameExecStrategy(action.SKIP, of_callees)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)


def skip_own_frames() -> None:
    """No function that only keeps our books is compiled."""
    own: list[Function] = [
        value
        for kind in (Training, OwnErrors, StepHooks)
        for value in vars(kind).values()
        if isinstance(value, FunctionType)
    ]
    for function in [*own, _begun]:
        skip_in_dynamo(function, with_callees=True)
    skip_in_dynamo(Seams._guarded)


def steps_done(optimizer: torch.optim.Optimizer) -> int | None:
    """How many steps an optimizer has made, from its state; None if that is not known without waiting for a device."""
    for state in optimizer.state.values():
        step = state.get("step") if isinstance(state, dict) else None
        if isinstance(step, torch.Tensor):
            return int(step) if step.device.type == "cpu" and step.numel() == 1 else None
        return step if isinstance(step, int) else None
    return None
