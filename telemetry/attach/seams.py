"""The functions of torch that a training loop calls. Each is replaced once, when the process becomes a rank.

nn.Module.__call__                forward, evaluation          DataLoader's iterators    data load
torch.autograd.backward           backward                     torch.save                checkpoint
pipelining: *_one_chunk           forward, backward            distributed.checkpoint    checkpoint, once it is imported
hooks of optimizers, GradScaler   optimizer, steps

Every replacement calls the original with the same arguments. It returns or raises what the original returns or raises.

torch.compile traces through ``Module.__call__`` and must not trace our code. ``is_compiling()`` is a constant there, so
the traced code is that of torch (``dynamo.py``). torch also has global hooks of modules. They are not used: they break
graphs, and make ``torch.compile`` warn at each call.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from threading import get_ident
from types import FunctionType
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.fx import GraphModule
from torch.utils.data.dataloader import _BaseDataLoaderIter

from telemetry.attach.dynamo import keep_shortcut_of_dynamo, skip_in_dynamo
from telemetry.attach.inferred_span import InferredSpan
from telemetry.attach.optimizers import Optimizers, has_closure, steps_done
from telemetry.attach.own_errors import OwnErrors
from telemetry.attach.step_hooks import STEP_HOOKS, StepHooks
from telemetry.attach.steps import Step, Steps
from telemetry.attach.training import Training
from telemetry.stages import Stage

Function = Callable[..., Any]
Begin = Callable[..., InferredSpan | None]
"""Called before the original function, with its arguments. Returns the span to end after it, or None."""
is_compiling = torch.compiler.is_compiling
running_backward: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
"""Id of the backward that runs on this thread; -1 if none runs."""
REPLACED = "replaced_by_rankscope"
"""Attribute of a replacement."""
CHECKPOINT = "torch.distributed.checkpoint"
PIPELINING = "torch.distributed.pipelining.stage"
STAGES_OF_CHUNKS = {
    "forward_one_chunk": Stage.FORWARD_COMPUTE,
    "backward_one_chunk": Stage.BACKWARD_COMPUTE,
    "backward_weight_one_chunk": Stage.BACKWARD_COMPUTE,
}
STAGES_OF_SAVES = {"save": Stage.CHECKPOINT_WRITE, "async_save": Stage.CHECKPOINT_SNAPSHOT}
STORAGES = torch.UntypedStorage, torch.storage.TypedStorage


class Seams:
    """Connects torch to a :class:`Training`."""

    def __init__(self, training: Training, errors: OwnErrors) -> None:
        self.training = training
        self._errors = errors

    def install(self) -> list[str]:
        """Replace the functions. Returns the names of those that this version of torch does not have."""
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
        if (checkpoint := sys.modules.get(CHECKPOINT)) is not None:
            for function, stage in STAGES_OF_SAVES.items():
                with suppress(Exception):
                    self._see_save(checkpoint, function, stage)

    def _see_forwards(self) -> None:
        plain, _ = torch.nn.Module.__call__, torch.nn.Module._call_impl  # both must exist
        training, guarded = self.training, self._guarded

        # torch's profiler reads the name ``self`` in this frame.
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or training.is_busy or training.thread != get_ident():
                compiled: Function | None = self._compiled_call_impl
                return self._call_impl(*args, **kwargs) if compiled is None else compiled(*args, **kwargs)
            return guarded(begin, plain, (self, *args), kwargs)

        def begin(module: Any, /, *_: Any, **__: Any) -> InferredSpan | None:
            with_grad = torch.is_grad_enabled()
            if not with_grad and isinstance(module, GraphModule):
                return None  # part of a compiled function, which has its own backward
            return training.begin_forward(with_grad=with_grad)

        __call__.__module__, __call__.__qualname__ = plain.__module__, "Module.__call__"
        replace(torch.nn.Module, "__call__", __call__)
        keep_shortcut_of_dynamo(plain, __call__)

    def _see_backwards(self) -> None:
        training = self.training
        self.surround(torch.autograd, "backward", lambda *_, **__: training.begin_backward())

    def _see_optimizers(self) -> None:
        training, errors = self.training, self._errors

        def before(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                self.see_imported()
                training.begin_optimizer(
                    optimizer,
                    with_closure=has_closure(args[1:], kwargs),
                    in_backward=running_backward() != -1,
                    steps_done=partial(steps_done, optimizer),
                )
            except Exception as error:
                errors.add(error)

        def after(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                training.end_optimizer(optimizer, optimizer, in_backward=running_backward() != -1)
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
        training, errors, end, plain = self.training, self._errors, self._end_step_of_scaler, GradScaler.step

        @wraps(plain)
        def step(self: GradScaler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                training.begin_optimizer(self, with_closure=has_closure(args, kwargs))
            except Exception as error:
                errors.add(error)
            completed = False
            try:
                answer = plain(self, optimizer, *args, **kwargs)
                completed = True
                return answer
            finally:
                end(self, optimizer, completed=completed)

        replace(GradScaler, "step", step)

    def _end_step_of_scaler(self, scaler: GradScaler, optimizer: Any, *, completed: bool) -> None:
        try:
            if completed:
                self.training.end_optimizer(scaler, optimizer)
            else:
                self.training.see_failed_optimizer()
        except Exception as error:
            self._errors.add(error)

    def _see_loads(self) -> None:
        plain = _BaseDataLoaderIter.__next__
        training, errors = self.training, self._errors

        @wraps(plain)
        def __next__(self: Any) -> Any:
            span = None if training.is_busy else _begun(training.begin_load, errors, (), {})
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
        training = self.training

        def begin(*args: Any, **kwargs: Any) -> InferredSpan | None:
            is_pickled = bool(args) and isinstance(args[0], STORAGES)  # pickle saves the storage of a tensor
            return None if is_pickled else training.begin_checkpoint(stage)

        self.surround(module, name, begin)

    def _see_chunks(self, pipelining: Any) -> None:
        """Record each forward and backward of a microbatch in a pipeline."""
        for name, stage in STAGES_OF_CHUNKS.items():
            self.surround(pipelining._PipelineStageBase, name, partial(self._begin_chunk, stage))

    def _begin_chunk(self, stage: Stage, of: Any, /, *args: Any, **kwargs: Any) -> InferredSpan | None:
        microbatch = args[0] if args else kwargs.get("fwd_chunk_id", kwargs.get("bwd_chunk_id", -1))
        return self.training.begin_chunk(stage, microbatch, of.stage_index // of.group_size)

    def surround(self, owner: Any, name: str, begin: Begin) -> None:
        """Let each call of a function begin a span (``begin``, with the same arguments) and end it. Can be repeated.

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
        span = _begun(begin, self._errors, args, kwargs)
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


def _begun(begin: Begin, errors: OwnErrors, args: tuple[Any, ...], kwargs: dict[str, Any]) -> InferredSpan | None:
    try:
        return begin(*args, **kwargs)
    except Exception as error:
        errors.add(error)
        return None


def replace(owner: Any, name: str, function: Function) -> None:
    """Replace a function of ``owner``, and also in the module that defines it, because pickle looks it up there."""
    plain = getattr(owner, name)
    setattr(function, REPLACED, True)
    skip_in_dynamo(function)
    for place in (owner, sys.modules.get(getattr(plain, "__module__", ""))):
        if getattr(place, name, None) is plain:
            setattr(place, name, function)


def skip_own_frames() -> None:
    """Let torch.compile skip our functions."""
    own: list[Function] = [_begun, Seams._end_step_of_scaler]
    for kind in (Training, Steps, Step, Optimizers, OwnErrors, StepHooks):
        own += [value for value in vars(kind).values() if isinstance(value, FunctionType)]
    for function in own:
        skip_in_dynamo(function, with_callees=True)
    skip_in_dynamo(Seams._guarded)
