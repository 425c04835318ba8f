"""Each extra, installed alone, runs its commands. An error about a missing package names the extra to install."""

import ast
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from urllib.request import urlopen

import pytest
from packaging.utils import canonicalize_name

from telemetry.collector.serving import listen
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import Runs
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.deploy.alone import BY_PIP, Alone, declared, extras
from tests.scenarios.command import rankscope
from tests.telemetry.served import collecting

LOAD_EACH = """
import json, sys
from importlib import import_module
from inspect import getclosurevars
from telemetry.user_errors import user_error
from ui.cli.main import COMMANDS, load_command

def works():
    for name in COMMANDS:
        command = load_command(name)
        for below, one in getattr(command, "commands", {"": command}).items():
            work = getclosurevars(one.callback.__wrapped__).nonlocals["work"]
            yield f"{name} {below}".strip(), work.partition(":")[0]

def outcome(name, module):
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        return user_error(error, extra=COMMANDS[name.split()[0]].extra).hint
    return "loads"

expected, modules = (words.split(",") for words in sys.argv[1:])
found = dict(works())
outcomes = {name: outcome(name, found[name]) for name in found if name in expected or name.split()[0] in expected}
for module in modules:
    import_module(module)
files = [getattr(module, "__file__", None) for name, module in sys.modules.items()
         if name.partition(".")[0] in ("rankscope", "telemetry", "trainer", "diagnose", "ui")]
others = {name: outcome(name, module) for name, module in found.items() if name not in outcomes}
print(json.dumps({"outcomes": outcomes, "others": others, "files": files}))
"""
RECORD = """
import sys, rankscope
rankscope.start("alone", spool=sys.argv[1], agent=False)
for number in range(3):
    with rankscope.step(number), rankscope.span("forward-compute"):
        pass
rankscope.stop()
"""
COMMANDS_OF = {
    "train": ["train"],
    "agent": ["agent", "runs", "diagnose"],
    "store": ["migrate", "collect", "runs", "diagnose"],
    "ui": ["ui", "runs", "diagnose", "alerts", "import", "export perfetto", "simulate", "doctor", "collect"],
    "mcp": ["mcp"],
}
"""Commands that must load with an extra. Other commands may load too."""
IMPORTED_LATE = {
    "train": ["trainer.run"],
    "agent": ["telemetry.wire.client"],
    "store": ["telemetry.collector.server", "telemetry.stores.embedded", "telemetry.stores.clickhouse"],
    "ui": ["ui.dashboard.app", "ui.dashboard.app", "telemetry.wire.client", "telemetry.collector.connections"],
    "mcp": ["telemetry.wire.client"],
}
"""Modules that these commands import when they run."""
CLIENTS = ("mlflow", "wandb", "trackio")
"""Clients of experiment trackers. They are large. ``tests/ui/test_export_clients.py`` uses those that are installed."""
COMES_WITH = {"starlette": "fastapi", "anyio": "fastapi", "h11": "uvicorn", "protobuf": "googleapis-common-protos"}
"""Packages that a declared requirement always installs."""

pytestmark = pytest.mark.long
DISTRIBUTIONS = packages_distributions()
MakeAlone = Callable[[str], Alone]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeAlone]:
    """Makes the environment of an extra once. Environments of pip take gigabytes, so all are deleted at the end."""
    made: dict[str, Alone] = {}

    def make(extra: str) -> Alone:
        if extra not in made:
            made[extra] = Alone(tmp_path_factory.mktemp("alone") / (extra or "none"), extra)
        return made[extra]

    yield make
    for environment in made.values():
        rmtree(environment.folder)


@pytest.fixture(scope="module")
def collector() -> Iterator[CollectorClient]:
    """A collector in this process, which has everything installed, with one simulated run."""
    store = EmbeddedStore()
    store.migrate()
    with collecting(store) as client:
        answer = rankscope("simulate", "--steps", 12, "--dp", 2, "--tp", 1, "--name", "kept", "--store", client.url)
        assert answer.status == 0, answer.error
        yield client
    store.close()


def free_port() -> int:
    with listen("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def assert_usage_error(ended: subprocess.CompletedProcess[str], *words: str) -> None:
    """The command ended with status 2, an error without a traceback, a hint, and these words."""
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    for word in ("hint: ", *words):
        assert word in ended.stderr


@pytest.mark.parametrize("extra", COMMANDS_OF)
def test_extra_declares_every_distribution_that_its_commands_import(extra: str, alone: MakeAlone) -> None:
    ended = alone(extra).run("-c", LOAD_EACH, ",".join(COMMANDS_OF[extra]), ",".join(IMPORTED_LATE[extra]))
    assert ended.returncode == 0, ended.stderr
    loaded = json.loads(ended.stdout)
    assert set(loaded["outcomes"].values()) == {"loads"}, loaded["outcomes"]
    assert len(loaded["outcomes"]) >= len(COMMANDS_OF[extra])
    others: dict[str, str] = loaded["others"]
    assert all(said == "loads" or said.startswith("pip install 'rankscope[") for said in others.values()), others
    imported = {COMES_WITH.get(one, one) for path in filter(None, loaded["files"]) for one in imported_by(Path(path))}
    assert imported <= declared(extra)  # a package that only another package requires may be missing later


def imported_by(path: Path) -> set[str]:
    """The distributions that a module imports at its top."""
    tops: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            tops |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            tops.add(str(node.module).partition(".")[0])
    owners = [DISTRIBUTIONS.get(top, []) for top in tops]
    return {canonicalize_name(own[0]) for own in owners if len(own) == 1} - {"rankscope"}


def test_every_extra_is_tested_in_this_file() -> None:
    used_below = {*COMMANDS_OF, "alerts", "perfetto", "otlp", "tensorboard", *CLIENTS}
    assert set(extras()) == used_below | {"all", "dev"}


def test_rank_records_and_commands_name_the_missing_extra_when_no_extra_is_installed(
    alone: MakeAlone, tmp_path: Path
) -> None:
    bare = alone("")
    assert bare.run("-c", RECORD, tmp_path / "spool").returncode == 0
    assert list((tmp_path / "spool").rglob("*.rec"))
    follow = ("--spool", tmp_path / "spool", "--collector", "http://127.0.0.1:1")
    for arguments in (("--help",), ("--version",), ("agent", "--help")):
        assert bare.run("-m", "ui.cli", *arguments).returncode == 0
    assert_usage_error(bare.run("-m", "ui.cli", "runs"), "pip install 'rankscope[ui]'")
    assert_usage_error(bare.run("-m", "ui.cli", "agent", *follow), "pip install 'rankscope[agent]'")
    assert_usage_error(bare.run("-m", "ui.cli", "train", "--out", tmp_path / "out"), "pip install 'rankscope[train]'")
    assert_usage_error(bare.run("-m", "telemetry.agent", *follow), "pip install 'rankscope[agent]'")


@pytest.mark.parametrize("module", [("ui.cli", "agent"), ("telemetry.agent",)], ids=" ".join)
def test_agent_extra_alone_ships_recorded_steps_to_the_collector(
    module: tuple[str, ...], alone: MakeAlone, collector: CollectorClient, tmp_path: Path
) -> None:
    agent, run = alone("agent"), f"alone-{len(module)}"
    recorded = agent.run("-c", RECORD.replace('"alone"', f'"{run}"'), tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    ended = agent.run("-m", *module, "--spool", tmp_path, "--collector", collector.url)
    assert ended.returncode == 0, ended.stderr
    stored = {row["run_id"]: row["last_step"] for row in collector.read(Runs()).to_pylist()}
    assert stored[run] == 2


def test_store_extra_alone_runs_the_collector_and_lists_runs(alone: MakeAlone, tmp_path: Path) -> None:
    store, port, log = alone("store"), free_port(), tmp_path / "log"
    address = f"embedded:{tmp_path / 'store'}"
    assert_usage_error(store.run("-m", "ui.cli", "collect", "--store", address), "rankscope[ui]", "--no-dashboard")
    assert store.run("-m", "ui.cli", "migrate", "--store", address).returncode == 0
    collect = ("-m", "ui.cli", "collect", "--no-dashboard", "--port", port, "--store", address)
    with running(store.start(*collect, log=log)), CollectorClient(f"http://127.0.0.1:{port}") as client:
        until(client.healthy, seconds=60, what="the collector's start")
        assert rankscope("simulate", "--steps", 2, "--store", client.url).status == 0
        assert "simulated" in store.run("-m", "ui.cli", "runs", "--store", client.url).stdout
    assert "simulated" in store.run("-m", "ui.cli", "runs", "--store", address).stdout


def test_ui_extra_alone_queries_a_collector_and_serves_the_dashboard(
    alone: MakeAlone, collector: CollectorClient, tmp_path: Path
) -> None:
    ui, port = alone("ui"), free_port()
    assert ui.run("-m", "ui.cli", "--help").returncode == 0
    assert "kept" in ui.run("-m", "ui.cli", "runs", "--store", collector.url).stdout
    assert ui.run("-m", "ui.cli", "diagnose", "kept", "--store", collector.url).returncode in (0, 1)
    assert_usage_error(ui.run("-m", "ui.cli", "runs", "--store", "embedded:/"), "no store")
    assert_usage_error(ui.run("-m", "ui.cli", "demo", "--out", tmp_path / "demo"), "pip install 'rankscope[all]'")
    serve = ("-m", "ui.cli", "ui", "--port", port, "--store", collector.url)
    with running(ui.start(*serve, log=tmp_path / "log")):
        until(lambda: _serves_a_page(f"http://127.0.0.1:{port}/"), seconds=60, what="the dashboard's start")


def _serves_a_page(address: str) -> bool:
    try:
        with urlopen(address, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_train_extra_alone_trains(alone: MakeAlone, tmp_path: Path) -> None:
    one_rank = ("--dp", 1, "--pp", 1, "--tp", 1, "--steps", 2)
    ended = alone("train").run("-m", "ui.cli", "train", *one_rank, "--out", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert len((tmp_path / "progress.jsonl").read_text().splitlines()) == 2


def test_export_extras_alone_export_and_the_error_names_a_missing_extra(
    alone: MakeAlone, collector: CollectorClient, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    form = ("--format", "protobuf", "--out", trace)
    asked = ("export", "perfetto", "kept", "--store", collector.url)
    ended = alone("perfetto").run("-m", "ui.cli", *asked, *form)
    assert (ended.returncode, trace.exists()) == (0, True), ended.stderr
    events = ("export", "tensorboard", "kept", "--store", collector.url, "--out", tmp_path / "events")
    ended = alone("tensorboard").run("-m", "ui.cli", *events)
    assert (ended.returncode, len(list((tmp_path / "events").iterdir()))) == (0, 1), ended.stderr
    nowhere = ("--endpoint", f"http://127.0.0.1:{free_port()}")
    ended = alone("otlp").run("-m", "ui.cli", "export", "otlp", "kept", "--store", collector.url, *nowhere)
    assert ended.returncode == 3, ended.stderr
    for kind in ("otlp", "tensorboard", *CLIENTS):
        assert_usage_error(
            alone("ui").run("-m", "ui.cli", "export", kind, "kept", "--store", collector.url), f"rankscope[{kind}]"
        )


def test_mcp_extra_alone_answers_the_initialize_request(alone: MakeAlone, collector: CollectorClient) -> None:
    serve = ("-m", "ui.cli", "mcp", "--store", collector.url)
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    greeting = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
    ended = alone("mcp").run(*serve, input=f"{json.dumps(greeting)}\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["result"]["serverInfo"]["name"] == "rankscope"
    assert_usage_error(alone("ui").run(*serve), "pip install 'rankscope[mcp]'")


@pytest.mark.skipif(not BY_PIP and find_spec("apprise") is None, reason="apprise is not installed: make extras")
def test_alerts_extra_alone_creates_the_apprise_hook(alone: MakeAlone, tmp_path: Path) -> None:
    (tmp_path / "urls").write_text(f"json://127.0.0.1:{free_port()}")
    (tmp_path / "rules").write_text(f'[hooks.all]\ntype = "apprise"\nurls_file = "{tmp_path / "urls"}"\n')
    ended = alone("alerts").run("-m", "ui.cli", "alerts", "test", "all", "--config", tmp_path / "rules")
    assert "apprise is not installed" not in ended.stderr
    assert ended.returncode in (2, 3), ended.stderr
