"""The shape of every command: a record of its options, and its work, which is imported when the command runs.

ui/cli/commands/NAME.py    the record: options, defaults and help     loads nothing that takes long
ui/cli/NAME.py             the work: a function of that record that returns the exit status
"""

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any, get_type_hints

import typer

PIPE_CLOSED = 128 + 13
"""Exit status where the reader of a pipe closed it: as if SIGPIPE had ended the command."""


def command(options: type[Any], work: str) -> Callable[..., None]:
    """A callback for Typer whose parameters are the fields of ``options`` and whose help is their docstring.

    Args:
        options: a frozen dataclass. Typer's options and arguments stand in the annotations of its fields.
        work: ``module:function``. The function takes a record of ``options`` and returns the exit status.
    """

    def run(**values: Any) -> None:
        module, _, function = work.partition(":")
        raise typer.Exit(getattr(import_module(module), function)(options(**values)))

    run.__doc__ = options.__doc__
    run.__annotations__ = get_type_hints(options, include_extras=True)
    vars(run)["__signature__"] = signature(options)
    return run
