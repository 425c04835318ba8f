"""``python -m telemetry.agent``: the agent where the ``rankscope`` command is not installed."""

import os
import sys
import traceback

from telemetry.errors import RankscopeError
from telemetry.parent_death import end_with_starter
from telemetry.printable import printable_lines
from telemetry.private_files import private_umask
from telemetry.user_errors import CRASH_STATUS, user_error


def main() -> int:
    """Exit status: 0 all is stored, 2 wrong use or unreadable files, 3 no collector answered (the files stay).

    70 is a defect of ours, or an error of the system: the process that started this agent starts another one.
    """
    end_with_starter()
    try:
        os.umask(private_umask())
        from telemetry.agent.command import follow  # noqa: PLC0415 - what is missing is an error with a hint

        follow("python -m telemetry.agent")
    except (RankscopeError, ModuleNotFoundError) as error:
        return _report(error)
    except Exception as error:
        traceback.print_exception(error)
        return CRASH_STATUS
    return 0


def _report(error: Exception) -> int:
    wrong = user_error(error, extra="agent")
    if wrong is None:
        raise error
    print(f"rankscope agent: {printable_lines(str(wrong))}", file=sys.stderr)
    return wrong.exit_status


if __name__ == "__main__":
    sys.exit(main())
