"""``python -m telemetry.agent``: ship the rank files of this host to a collector."""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from telemetry.agent.loop import AgentSettings, run_agent
from telemetry.errors import RankscopeError


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 all is stored, 2 wrong use or unreadable files, 3 no collector answered (the files stay)."""
    settings = _settings(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        run_agent(settings, stop)
    except RankscopeError as error:
        print(f"rankscope agent: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def _settings(arguments: list[str] | None) -> AgentSettings:
    parser = argparse.ArgumentParser(prog="python -m telemetry.agent", description=__doc__)
    parser.add_argument("--spool", type=Path, required=True, help="folder that ranks write into")
    parser.add_argument("--run", help="follow this run only")
    parser.add_argument("--attempt", type=int, help="follow this attempt only")
    parser.add_argument("--collector", default=os.environ.get("RANKSCOPE_COLLECTOR"), help="address, http://host:port")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two looks")
    parser.add_argument(
        "--patience", type=float, default=60.0, help="seconds to wait for a silent collector once every rank is over"
    )
    given = parser.parse_args(arguments)
    if not given.collector:
        parser.error("say where the collector is: --collector http://host:port, or RANKSCOPE_COLLECTOR")
    if given.interval <= 0 or given.patience < 0:
        parser.error("--interval is above zero, --patience not below")
    return AgentSettings(
        spool=given.spool,
        collector=given.collector,
        run_id=given.run,
        attempt=given.attempt,
        interval_s=given.interval,
        patience_s=given.patience,
    )


if __name__ == "__main__":
    sys.exit(main())
