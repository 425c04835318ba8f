"""Standard output and standard error of every command."""

from contextlib import suppress

from diagnose.report.as_text import Terminal
from ui.cli.commands.command import PIPE_CLOSED


class Results(Terminal):
    """Standard output. A reader that closes the pipe ends the command, with neither 0 (nothing found) nor 1."""

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(PIPE_CLOSED)


out = Results(soft_wrap=True)
progress = Terminal(stderr=True, soft_wrap=True)
"""Everything else: standard error."""
