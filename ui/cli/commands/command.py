"""The shape of every command: a record of its options, and its work, which is imported when the command runs.

ui/cli/commands/NAME.py    the record: options, defaults and help     loads nothing that takes long
ui/cli/NAME.py             the work: a function of that record that returns the exit status
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from telemetry.errors import UsageError
from telemetry.process.quick_imports import quick_imports

CONTEXT = "context"
"""The parameter of each command that holds Typer's context."""
PIPE_CLOSED = 128 + 13
"""Exit status if the reader of a pipe closed it. It is the same as if SIGPIPE had ended the command."""
DEFAULT = "run"
"""The subcommand of a :class:`RunByDefault` that runs if none is named."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Stands in the annotation of an option that has an effect only if one of ``fields`` is set."""

    fields: tuple[str, ...]


def command(options: type[Any], work: str) -> Callable[..., None]:
    """A callback for Typer whose parameters are the fields of ``options`` and whose help is their docstring.

    Args:
        options: a frozen dataclass. Typer's options and arguments stand in the annotations of its fields.
        work: ``module:function``. The function takes a record of ``options`` and returns the exit status.
    """
    hints = get_type_hints(options, include_extras=True)
    shape = signature(options)

    def run(**values: Any) -> None:
        _refuse_ignored(values[CONTEXT], hints, values)
        module, _, function = work.partition(":")
        given = {name: values[name] for name in shape.parameters}
        with quick_imports():
            imported = import_module(module)
        raise typer.Exit(getattr(imported, function)(options(**given)))

    context = Parameter(CONTEXT, Parameter.KEYWORD_ONLY, annotation=typer.Context)
    others = [parameter for name, parameter in shape.parameters.items() if name != CONTEXT]
    run.__doc__ = options.__doc__
    run.__annotations__ = {CONTEXT: typer.Context, **hints}
    vars(run)["__signature__"] = shape.replace(parameters=[context, *others])
    return run


def add_command(
    group: typer.Typer, name: str, options: type[Any], work: str, cls: type[TyperCommand] = TyperCommand
) -> None:
    """Add a subcommand to ``group``. The list of subcommands shows the whole first sentence of its help."""
    summary = " ".join((options.__doc__ or "").split()).partition(". ")[0].rstrip(".") + "."
    group.command(name, cls=cls, short_help=summary)(command(options, work))


def _refuse_ignored(context: typer.Context, hints: dict[str, Any], values: dict[str, Any]) -> None:
    """Refuse an option on the command line that has no effect without another one.

    Raises:
        UsageError: there is such an option.
    """
    flags = {str(option.name): option.opts[0] for option in context.command.params}
    for field, hint in hints.items():
        for needs in getattr(hint, "__metadata__", ()):
            if (
                isinstance(needs, Needs)
                and _is_given(context, field)
                and not any(values[name] for name in needs.fields)
            ):
                others = " or ".join(flags[name] for name in needs.fields)
                raise UsageError(
                    f"{flags[field]} has no effect without {others}", hint=f"add {others}, or omit {flags[field]}"
                )


def _is_given(context: typer.Context, field: str) -> bool:
    """Whether the option is on the command line. A value from the environment may be meant for other commands."""
    source = context.get_parameter_source(field)
    return source is not None and source.name == "COMMANDLINE"


class RunByDefault(TyperGroup):
    """Arguments that do not begin with the name of a subcommand are those of ``run``: ``diagnose RUN``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else [DEFAULT, *args])


class DefaultCommand(TyperCommand):
    """The subcommand ``run`` of a :class:`RunByDefault`. Its help also lists the other subcommands."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the usage without the name of the subcommand, because it may be omitted."""
        formatter.write_usage(ctx.parent.command_path, " ".join(self.collect_usage_pieces(ctx)))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        group = ctx.parent.command if ctx.parent else None
        if isinstance(group, RunByDefault):
            others = [(name, other) for name, other in group.commands.items() if name != DEFAULT]
            with formatter.section("Subcommands, each with --help"):
                formatter.write_dl([(name, other.get_short_help_str(formatter.width)) for name, other in others])
