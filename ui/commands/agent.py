"""`rankscope agent`: ship the rank files of this host."""

import os
from pathlib import Path
from typing import Annotated

import typer

from telemetry.agent.loop import AgentSettings, run_agent
from telemetry.readers import DEFAULT_COLLECTOR

SpoolOption = Annotated[Path, typer.Option(help="Folder of rank files, as given to the ranks.")]
CollectorOption = Annotated[str, typer.Option(envvar="RANKSCOPE_COLLECTOR", help="Where to ship to.")]
RunOption = Annotated[str | None, typer.Option(help="Only this run; all under the spool when left out.")]
AttemptOption = Annotated[int | None, typer.Option(min=0, help="Only this attempt.")]
IntervalOption = Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")]


def agent(
    spool: SpoolOption,
    collector: CollectorOption = DEFAULT_COLLECTOR,
    run: RunOption = None,
    attempt: AttemptOption = None,
    interval: IntervalOption = 1.0,
) -> None:
    """Ship rank files until their ranks have ended and everything is acknowledged."""
    token = os.environ.get("RANKSCOPE_TOKEN")
    run_agent(
        AgentSettings(spool=spool, collector=collector, token=token, run_id=run, attempt=attempt, interval_s=interval)
    )
