"""The server and the files of the driver, and the findings that it reads from a webhook."""

import json
import signal
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from diagnose.alerts.alert import Alert, account_of, fingerprint_of, labels_of
from diagnose.alerts.alert import Phase as AlertPhase
from diagnose.alerts.hooks.shape import v4_body
from diagnose.alerts.notice import Notice, Status, notice_of
from diagnose.findings import Finding, Kind, Role, Severity, StepWindow, Suspect
from telemetry.collector.settings import ServerSettings
from telemetry.errors import UnreadableError, UsageError
from tests.deadline import until
from tests.each_case import each_case
from tests.telemetry.served import serving
from tests.trainer.jobs import small_config
from trainer.drive.alerts import findings_in
from trainer.drive.driver import Driver, make_app
from trainer.drive.folder import DECISIONS, JOB, STATE, JobFile, JobFolder, held_lock
from trainer.drive.job import Job, Phase
from trainer.drive.marks import MarkSender
from trainer.drive.node_check import read_results
from trainer.drive.records import Action, Decision, Order, Report, Request, Work
from trainer.drive.settings import DriveConfig
from trainer.drive.status import Status as DriverStatus
from trainer.json_records import decode, encode
from trainer.run_options import RunOptions

TOKEN = "t" * 64
FINDING = Finding(
    detector="made",
    kind=Kind.HUNG_COLLECTIVE,
    severity=Severity.CRITICAL,
    suspects=(),
    stage="",
    window=StepWindow(first_step=0, last_step=1),
    seconds_lost=0.0,
    confidence=1.0,
    summary="",
    next_step="",
)
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    found = JobFolder(tmp_path / "job")
    found.make()
    return found


@pytest.fixture
def driver(folder: JobFolder) -> Driver:
    options = RunOptions(out=folder.out, run_id="run")
    job = JobFile(train=small_config(dp=2), options=options, drive=DriveConfig(num_nodes=2, checks=False))
    folder.write(JOB, job)
    return Driver(folder, job, MarkSender(options))


@pytest.fixture
def client(driver: Driver) -> Iterator[httpx.Client]:
    app = make_app(driver, ServerSettings.checked(token=TOKEN), lambda: None)
    with serving(app) as url, httpx.Client(base_url=url, trust_env=False, verify=False) as client:
        yield client


def report(client: httpx.Client, node: str, **fields: object) -> Order:
    content = encode(Report(node=node, life="first", **fields))  # type: ignore[arg-type]
    answer = client.post("/v1/reports", content=content, headers=HEADERS)
    assert answer.status_code == 200, answer.text
    return decode(Order, answer.content)


def test_driver_answers_reports_of_nodes_with_orders(client: httpx.Client) -> None:
    assert report(client, "node-0").work is Work.IDLE
    order = report(client, "node-1")
    assert (order.work, order.attempt, order.position) == (Work.TRAIN, 0, 1)


def test_requests_without_the_token_are_rejected(client: httpx.Client) -> None:
    for path in ("/v1/reports", "/v1/findings", "/v1/requests"):
        assert client.post(path, content=b"{}").status_code == 401
    assert client.get("/v1/status").status_code == 401


def test_driver_ignores_the_collector_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ServerSettings.of_job(host="127.0.0.1", token=TOKEN)
    for name in ("TOKEN", "READ_TOKEN", "REQUESTS_PER_SECOND", "MAX_BODY_BYTES", "ALLOWED_HOSTS", "TLS_CERT"):
        monkeypatch.setenv(f"RANKSCOPE_{name}", "1")
    assert ServerSettings.of_job(host="127.0.0.1", token=TOKEN) == usual
    assert usual.tokens.full == TOKEN


@each_case("body", [b"", b"[]", b"{", b'{"node": 1}', b"\xff\xfe", b"null"])
@each_case("path", ["reports", "findings", "requests"])
def test_invalid_body_is_rejected_with_a_hint_and_does_not_change_the_status(
    client: httpx.Client, path: str, body: bytes
) -> None:
    report(client, "node-0"), report(client, "node-1")
    before = client.get("/v1/status", headers=HEADERS).content
    answer = client.post(f"/v1/{path}", content=body, headers=HEADERS)
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"error", "hint"}
    assert client.get("/v1/status", headers=HEADERS).content == before


def test_hung_collective_alert_from_the_watcher_becomes_one_decision(client: httpx.Client) -> None:
    report(client, "node-0"), report(client, "node-1")
    body = v4_body("driver", [_notice("hung-collective", "node-1", attempt=0)])
    assert client.post("/v1/findings", json=body, headers=HEADERS).status_code == 204
    status = decode(DriverStatus, client.get("/v1/status", headers=HEADERS).content)
    assert [decision.name for decision in status.decisions].count("hung-collective") == 1


BAD_ALERTS = (
    None,
    {},
    {"labels": None},
    {"labels": {"alertname": "DiskFull", "instance": "node-7"}},
    {"labels": {"alertname": "dead-rank", "run_id": "run", "attempt": "first"}},
    {"labels": {"alertname": "dead-rank", "run_id": "run", "attempt": "0"}, "annotations": "text"},
)


def test_invalid_alerts_are_reported_and_the_other_alerts_are_processed(
    client: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    report(client, "node-0"), report(client, "node-1")
    body = v4_body("driver", [_notice("hung-collective", "node-1", attempt=0)])
    body["alerts"][:0] = BAD_ALERTS
    answer = client.post("/v1/findings", json=body, headers=HEADERS)
    assert answer.status_code == 200
    for number, (refused, bad) in enumerate(zip(answer.json()["refused"], BAD_ALERTS, strict=True)):
        assert f"alert {number}" in refused["error"], bad
        assert refused["hint"], bad
    assert f"{len(BAD_ALERTS)} of {len(BAD_ALERTS) + 1} alerts are refused" in capfd.readouterr().err
    status = decode(DriverStatus, client.get("/v1/status", headers=HEADERS).content)
    assert "hung-collective" in {decision.name for decision in status.decisions}


def test_body_with_only_invalid_alerts_is_rejected(client: httpx.Client) -> None:
    answer = client.post("/v1/findings", json={"alerts": list(BAD_ALERTS)}, headers=HEADERS)
    assert answer.status_code == 400
    assert answer.json()["error"] == "alert 0 must be a table"


def test_finding_from_a_notice_has_all_hosts_of_the_notice() -> None:
    notice = _notice("hung-collective", "", attempt=3, hosts=", ".join(f"node-{number}" for number in range(6)))
    ((finding,), _) = findings_in(json.dumps(v4_body("driver", [notice])).encode())
    assert (finding.kind, finding.attempt, finding.hosts) == (
        "hung-collective",
        3,
        tuple(f"node-{number}" for number in range(6)),
    )


@each_case(
    ("details", "step"),
    [
        ("detector: loss-anomaly\nsteps: 51-64", 51),
        ("steps: 0-0", 0),
        ("steps: ", -1),
        ("steps: -5", -1),
        (f"steps: {'9' * 40}-1", -1),
        ("steps: \N{SUPERSCRIPT TWO}-3", -1),
        ("", -1),
    ],
)
def test_first_step_of_a_finding_is_read_from_the_alert_details(details: str, step: int) -> None:
    labels = {"alertname": "loss-anomaly", "run_id": "run", "attempt": "0"}
    body = {"alerts": [{"labels": labels, "annotations": {"details": details}}]}
    ((finding,), _) = findings_in(json.dumps(body).encode())
    assert finding.first_step == step


def test_loss_anomaly_alert_of_the_watcher_contains_the_first_step() -> None:
    notice = _notice("loss-anomaly", "", attempt=0, window=StepWindow(first_step=51, last_step=64))
    ((finding,), _) = findings_in(json.dumps(v4_body("driver", [notice])).encode())
    assert (finding.kind, finding.first_step, finding.hosts) == ("loss-anomaly", 51, ())


def test_request_for_an_unknown_node_is_rejected(client: httpx.Client) -> None:
    answer = client.post("/v1/requests", content=encode(Request(action=Action.DRAIN, node="node-5")), headers=HEADERS)
    assert answer.status_code == 400
    assert answer.json()["error"] == "no node 'node-5'"


def test_new_driver_continues_from_the_stored_state(client: httpx.Client, driver: Driver, folder: JobFolder) -> None:
    report(client, "node-0"), report(client, "node-1")
    job = folder.read(JOB, JobFile)
    assert job is not None
    later = Driver(folder, job, MarkSender(job.options))
    assert (later.job.phase, later.job.attempt, later.job.members) == (Phase.TRAIN, 0, ("node-0", "node-1"))
    assert [decision.name for decision in folder.decisions()][-2:] == ["start", "take-over"]


def test_signal_ends_the_job_at_the_next_tick(driver: Driver) -> None:
    driver.report(Report(node="node-0", life="first"))
    driver.end(signal.SIGTERM)
    assert driver.job.phase is Phase.GATHER, "a handler interrupts other methods: it must not change the state"
    driver.tick()
    assert driver.job.phase is Phase.ENDED


def test_decisions_that_could_not_be_written_are_written_later(folder: JobFolder, driver: Driver) -> None:
    folder.path.chmod(0o777)  # refused, as a full disk is
    for node in ("node-0", "node-1"):
        with pytest.raises(OSError, match="can write into"):
            driver.report(Report(node=node, life="first"))
    folder.path.chmod(0o700)
    driver.tick()
    assert [decision.name for decision in folder.decisions()] == ["join", "join", "start"]
    stored = folder.read(STATE, Job)
    assert stored is not None
    assert stored.phase is Phase.TRAIN


def test_driver_completes_its_end_when_its_state_can_be_written_again(folder: JobFolder, driver: Driver) -> None:
    stopped = threading.Event()
    with serving(make_app(driver, ServerSettings.checked(token=TOKEN), stopped.set)):
        folder.path.chmod(0o777)
        driver.end(signal.SIGTERM)
        until(lambda: driver.job.phase is Phase.ENDED, what="a tick that cannot be written")
        folder.path.chmod(0o700)
        assert stopped.wait(30)
    assert [decision.name for decision in folder.decisions()] == ["end"]


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_wall_clock_change_does_not_mark_a_node_as_lost(
    folder: JobFolder, driver: Driver, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    for node in ("node-0", "node-1"):
        driver.report(Report(node=node, life="first"))
    before_s, now_s = driver.job.nodes["node-1"].heard_s, time.time()
    monkeypatch.setattr("time.time", lambda: now_s + step_s)
    driver.tick()
    driver.report(Report(node="node-1", life="first"))
    assert before_s <= driver.job.nodes["node-1"].heard_s < before_s + 60.0
    assert "lost" not in {decision.name for decision in folder.decisions()}


def test_decision_after_a_torn_line_is_still_read(folder: JobFolder) -> None:
    first, second, third = (Decision(at_ns=number, attempt=0, name="start", reason="") for number in range(3))
    folder.append([first, second])
    path = folder.path / DECISIONS
    path.write_bytes(path.read_bytes()[:-5])
    folder.append([third])
    assert folder.decisions() == [first, third]


def test_files_of_the_driver_are_private(client: httpx.Client, folder: JobFolder) -> None:
    report(client, "node-0"), report(client, "node-1")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder.path, *folder.path.iterdir()]}
    assert {mode for name, mode in modes.items() if name != "drive"} == {0o600}
    assert modes["drive"] == 0o700


def test_damaged_state_file_raises_an_error_with_its_path(folder: JobFolder) -> None:
    folder.write_text(STATE, '{"phase": "flying"}')
    with pytest.raises(UnreadableError, match=r"state\.json"):
        folder.read(STATE, Job)


@each_case(
    ("content", "words"),
    [
        (b"", "not a valid report: it is not JSON"),
        (b"[]", "not a valid report: it must be a table"),
        (b'{"node": 1}', "not a valid report: node: must be text"),
        (b'{"node": "a"}', "not a valid report: life: is missing"),
        (b'{"node": "a", "life": "b", "check": {"number": "x"}}', "check.number: must be a whole number"),
        (b'{"node": "a", "life": "b", "ended": 3}', "ended: must be a list"),
    ],
)
def test_invalid_report_raises_an_error_that_names_the_problem(content: bytes, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        decode(Report, content)
    assert raised.value.message.endswith(words)
    assert raised.value.hint == "use the same version on all nodes"


def test_a_link_in_place_of_a_file_is_not_followed(folder: JobFolder, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (folder.path / STATE).symlink_to(target)
    folder.write_text(STATE, "{}")
    assert target.read_text() == "untouched"
    (folder.path / JOB).symlink_to(target)
    with pytest.raises(UnreadableError):
        folder.read(JOB, JobFile)


def test_a_folder_that_others_can_write_into_is_refused(folder: JobFolder) -> None:
    folder.write_text(STATE, "{}")
    folder.path.chmod(0o777)
    with pytest.raises(UnreadableError, match="other users can write"):
        folder.read(STATE, Job)


def test_lock_that_is_held_cannot_be_taken_again(folder: JobFolder) -> None:
    with held_lock(folder.path) as first, held_lock(folder.path) as second:
        assert first is not None
        assert second is None


def test_the_results_of_the_node_check_are_read() -> None:
    usual = {
        "check": "gemm",
        "subject": "cpu",
        "measured": "",
        "value": None,
        "detail": "",
        "is_late": False,
        "is_killed": False,
    }
    checks = [
        {**usual, "verdict": "measured", "measured": "gemm_tflops", "value": 0.1},
        {**usual, "verdict": "failed", "detail": "wrong data"},
        {**usual, "verdict": "failed", "detail": "did not finish in 15 s", "is_late": True},
        {**usual, "verdict": "failed", "detail": "was killed by SIGKILL", "is_killed": True},
        {**usual, "verdict": "skipped"},
    ]
    gemm, wrong, late, killed = read_results(json.dumps({"checks": checks}))
    assert (gemm.value, gemm.failed) == (0.1, False)
    assert (wrong.failed, wrong.detail) == (True, "wrong data")
    assert (late.value, late.failed) == (0.0, False)
    assert (killed.value, killed.failed, killed.killed) == (None, False, True)


@each_case("text", ["", "error: no torch", "[]", '{"checks": [{}]}'])
def test_invalid_output_of_the_node_check_raises_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="printed no result"):
        list(read_results(text))


def _notice(kind: str, host: str, *, attempt: int, hosts: str = "", window: StepWindow = FINDING.window) -> Notice:
    suspects = tuple(
        Suspect(rank=number, host=name, role=Role.INITIATING) for number, name in enumerate((host or hosts).split(", "))
    )
    finding = replace(FINDING, kind=Kind(kind), suspects=suspects, window=window, summary=f"{kind} on {host or hosts}")
    labels = labels_of(finding, "run", attempt)
    alert = Alert(
        fingerprint=fingerprint_of(labels),
        labels=labels,
        phase=AlertPhase.FIRING,
        account=account_of(finding),
        ranks=(),
        began_ns=1,
        changed_ns=1,
    )
    return notice_of(alert, Status.FIRING, number=1, repeated=False, now_ns=2, dashboard="")
