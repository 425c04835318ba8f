"""The `rankscope` command, and ``python -m rankscope``."""

import sys
from importlib import import_module

from rankscope.shadowing import check_own_packages

WRONG_USE = 2


def main() -> None:
    """Run the command line. If a file of the user hides one of its packages, print one line that names the file."""
    try:
        check_own_packages("diagnose", "trainer", "ui")
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(WRONG_USE)
    # By name: the layers above import this package, which must not import them.
    import_module("ui.cli.main").main()


if __name__ == "__main__":
    main()
