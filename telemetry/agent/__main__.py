"""``python -m telemetry.agent`` runs the agent where the ``rankscope`` command is not installed."""

import os
import sys
import traceback

from telemetry.agent.settings import follow
from telemetry.errors import RankscopeError
from telemetry.files.access import private_umask
from telemetry.printable import write_lines
from telemetry.process.child_process import end_with_starter
from telemetry.user_errors import CRASH_STATUS, user_error


def main() -> int:
    """Run the agent. Exit status: 0 all is stored, 2 wrong use or unreadable files, 3 no collector answered (the files
    stay).

    70: a defect of rankscope, or an error of the system. The process that started this agent starts another one.
    """
    end_with_starter()
    try:
        os.umask(private_umask())
        follow("python -m telemetry.agent")
    except Exception as error:
        return _report(error)
    return 0


def _report(error: Exception) -> int:
    wrong = user_error(error, extra="agent") if isinstance(error, RankscopeError | ModuleNotFoundError) else None
    if wrong is None:
        write_lines("".join(traceback.format_exception(error)))
        return CRASH_STATUS
    write_lines(f"rankscope agent: {wrong}")
    return wrong.exit_status


if __name__ == "__main__":
    sys.exit(main())
