"""Decisions of the driver of a job, reported as a finding."""

from dataclasses import replace

from diagnose.detectors.job_restarted import detect_job_restarted
from diagnose.findings import Kind, Severity
from diagnose.model.fleet import Fleet, HostEvent
from diagnose.model.run_state import local_time
from diagnose.model.view import RunView
from diagnose.report.evidence import evidence_in_words
from telemetry.host_metrics import Happening
from telemetry.topology import Topology
from tests.diagnose.made_view import make_view
from tests.trainer.drive.cluster import Cluster


def seen(*texts: str) -> RunView:
    events = tuple(
        HostEvent(host="node-2", device="driver", at_ns=at, name=Happening.DRIVER, text=text)
        for at, text in enumerate(texts)
    )
    return replace(make_view(Topology(dp=2)), fleet=Fleet(events=events))


def test_a_first_attempt_yields_nothing() -> None:
    assert detect_job_restarted(make_view(Topology(dp=2))) == []
    assert detect_job_restarted(seen("check: check node-0", "admit: it passed", "start: attempt 0 on node-0")) == []


def test_a_restart_is_reported_with_its_reason() -> None:
    (finding,) = detect_job_restarted(seen("start: attempt 1 on node-0 after: rank 4 was killed by SIGKILL on node-2"))
    assert (finding.kind, finding.severity, finding.suspects) == (Kind.JOB_RESTARTED, Severity.WARNING, ())
    assert finding.summary == "the driver restarted the job: rank 4 was killed by SIGKILL on node-2"


def test_restart_that_an_operator_asked_for_is_info() -> None:
    (finding,) = detect_job_restarted(seen("start: attempt 1 on node-0 after: an operator asked to drain node node-2"))
    assert finding.severity is Severity.INFO


def test_blocked_node_and_give_up_of_the_driver_are_reported() -> None:
    (finding,) = detect_job_restarted(seen("block: slow in two rounds of checks", "give-up: 3 of 4 nodes are ready"))
    assert finding.severity is Severity.CRITICAL
    assert "node-2 is blocked: slow" in finding.summary
    assert "the driver gave up: 3 of 4 nodes are ready" in finding.summary


def test_evidence_names_time_node_and_reason_of_each_decision_in_words() -> None:
    """Decisions without a node are stored under the name of the driver."""
    on_node = seen("check: check node-0", "rank-failed: rank 4 was killed by SIGKILL on node-2", "block: wrong data")
    of_job = HostEvent(
        host="driver", device="driver", at_ns=3, name=Happening.DRIVER, text="start: attempt 1 on node-0"
    )
    view = replace(on_node, fleet=Fleet(events=(*on_node.fleet.events, of_job)))
    (finding,) = detect_job_restarted(view)
    at = local_time(0)
    assert list(evidence_in_words(finding.evidence)) == [
        (
            "decisions",
            f"{at} node-2 rank failed: rank 4 was killed by SIGKILL on node-2, {at} node-2 blocked: wrong data, "
            f"{at} the driver started the job: attempt 1 on node-0",
        )
    ]


def test_detector_reads_the_text_that_the_driver_writes() -> None:
    cluster = Cluster()
    cluster.train(0)
    cluster.end_ranks("node-2", -9)
    cluster.train(1)
    start = [f"{decision.name}: {decision.reason}" for decision in cluster.decisions if decision.name == "start"]
    (finding,) = detect_job_restarted(seen(*start))
    assert finding.summary == "the driver restarted the job: rank 4 was killed by SIGKILL on node-2"
