"""Size and device of an operation, from its arguments."""

from typing import Any

import torch


def size_bytes(arguments: Any) -> int:
    """Bytes of the largest argument: the output of an all-gather, the input of a reduce-scatter."""
    return max((_tensor_bytes(argument) for argument in arguments), default=0)


def received_bytes(arguments: Any) -> int:
    """Bytes of the first argument: the output of an all-to-all on this rank. Ranks may receive unequal amounts."""
    return _tensor_bytes(arguments[0]) if arguments else 0


def _tensor_bytes(argument: Any) -> int:
    if isinstance(argument, torch.Tensor):
        return 0 if argument.is_sparse else argument.nbytes  # ranks may hold different numbers of values
    if isinstance(argument, list | tuple):
        return sum(_tensor_bytes(item) for item in argument)
    return 0


def cuda_device(arguments: Any) -> int | None:
    """The CUDA device of the first tensor in an operation's arguments; None if it is not on such a device, or if there
    is no tensor."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            return argument.device.index if argument.is_cuda else None
        if isinstance(argument, list | tuple) and argument:
            return cuda_device(argument)
    return None
