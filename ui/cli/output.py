"""Standard output and standard error of every command."""

from contextlib import suppress

from diagnose.report.as_text import Terminal
from ui.cli.commands.command import PIPE_CLOSED


class Results(Terminal):
    """Standard output. If the reader closes the pipe, the command ends with ``PIPE_CLOSED``, not with 0 or 1."""

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(PIPE_CLOSED)


out = Results(soft_wrap=True)
progress = Terminal(stderr=True, soft_wrap=True)
"""Standard error, for all output that is no result."""
