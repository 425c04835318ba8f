import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from diagnose.findings import Severity
from diagnose.pipeline import diagnose_view
from diagnose.ranges import fold_ranks
from diagnose.report import report_object, report_text
from telemetry.topology import Topology
from tests.diagnose.made_view import make_view

GRID = Topology(dp=2, pp=2, tp=2)


def text_of(slow: dict[int, float]) -> str:
    console = Console(file=io.StringIO(), width=200, soft_wrap=True)
    console.print(report_text(diagnose_view(make_view(GRID, slow=slow))))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_first_line_of_the_text_is_the_verdict() -> None:
    first = text_of({5: 1.4}).splitlines()[0]
    assert first.startswith("rank 5 (host gpu-00, dp1 pp0 tp1): ")
    assert "its peers' time in" in first
    assert "of the step time" in first


def test_text_of_a_healthy_run_says_that_nothing_was_found_and_what_was_checked() -> None:
    assert text_of({}).startswith("nothing found: no slow rank or stage in 40 steps of 8 ranks")


def test_report_object_has_all_fields_of_schema_1() -> None:
    answer = report_object(diagnose_view(make_view(GRID, slow={5: 1.4})))
    assert json.loads(json.dumps(answer)) == answer
    assert (answer["schema"], answer["run"], answer["attempt"]) == (1, "made", 0)
    assert answer["window"] == {"first_step": 100, "last_step": 139}
    (finding,) = answer["findings"]
    expected = {"detector", "kind", "severity", "ranks", "hosts", "stage", "seconds_lost", "confidence", "summary"}
    assert expected | {"next_step", "evidence"} <= finding.keys()
    assert finding["ranks"] == [5]


@pytest.mark.parametrize(("slow", "status"), [({}, 0), ({5: 1.4}, 1)])
def test_findings_set_the_exit_status(slow: dict[int, float], status: int) -> None:
    assert diagnose_view(make_view(GRID, slow=slow)).exit_status == status


def test_finding_of_severity_info_leaves_exit_status_0() -> None:
    report = diagnose_view(make_view(GRID, slow={5: 1.4}))
    harmless = tuple(replace(finding, severity=Severity.INFO) for finding in report.findings)
    assert (len(harmless), replace(report, findings=harmless).exit_status) == (1, 0)


def test_the_costliest_finding_comes_first() -> None:
    findings = diagnose_view(make_view(Topology(dp=8, pp=2), slow={3: 1.2, 8: 1.8})).findings
    assert [finding.ranks for finding in findings] == [[8], [3]]


def test_ranks_fold_to_ranges() -> None:
    assert fold_ranks([7, 0, 1, 2, 5]) == "0-2, 5, 7"
