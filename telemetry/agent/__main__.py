"""``python -m telemetry.agent``: the agent where the ``rankscope`` command is not installed."""

import os
import sys

from telemetry.agent.command import follow
from telemetry.errors import RankscopeError
from telemetry.private_files import private_umask


def main() -> int:
    """Exit status: 0 all is stored, 2 wrong use or unreadable files, 3 no collector answered (the files stay)."""
    try:
        os.umask(private_umask())
        follow("python -m telemetry.agent")
    except RankscopeError as error:
        print(f"rankscope agent: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
