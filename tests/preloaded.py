"""What processes of tests need. Each of them is a fork of one that has loaded it (``tests/forkserver.py``)."""

from importlib import import_module

import pyarrow

from telemetry.process.quick_imports import quick_imports

MODULES = (
    "telemetry.record.session",
    "telemetry.agent.loop",
    "telemetry.collector.server",
    "telemetry.stores.clickhouse",
    "ui.cli.main",
    "ui.cli.alerts",
    "ui.cli.collect",
    "ui.cli.diagnose",
    "ui.cli.doctor",
    "ui.cli.export_perfetto",
    "ui.cli.import_run",
    "ui.cli.simulate",
    "pyarrow.compute",
    "httpcore",
    "anyio._backends._asyncio",
    "pydantic.v1",
    "uvicorn.loops.auto",
    "xml.etree.ElementTree",
    "tests.integration.chaos.roles",
)

with quick_imports():
    for module in MODULES:
        import_module(module)
    pyarrow.array([0])  # loads pandas, which takes half a second of processor time
