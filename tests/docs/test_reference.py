"""The reference follows the code: command pages, the form of findings, and the extension points."""

import json
import re
from dataclasses import fields

from diagnose.findings import Finding, Kind, Role, Severity, StepWindow, Suspect
from diagnose.model.marks import Mark
from diagnose.model.run_state import RunState
from diagnose.pipeline import Report
from diagnose.report.as_json import finding_object, report_object
from scripts import docs_site
from tests.docs.pages import DOCS, ROOT
from ui.cli.main import COMMANDS
from ui.dashboard.tools.operations import OPERATIONS

SCHEMA = json.loads((DOCS / "reference" / "findings.schema.json").read_text())
PAGE = (DOCS / "reference" / "findings.md").read_text()
FINDING = Finding(
    detector="made",
    kind=Kind.SLOW_LINK,
    severity=Severity.INFO,
    suspects=(Suspect(rank=1, host="a", role=Role.INITIATING),),
    stage="",
    window=StepWindow(first_step=0, last_step=1),
    seconds_lost=0.0,
    confidence=0.5,
    summary="",
    next_step="",
)


def test_every_command_has_a_reference_page_with_all_its_options() -> None:
    made = docs_site.command_pages()
    assert {f"reference/cli/{name}.md" for name in COMMANDS} < set(made)
    for name in COMMANDS:
        for path, command in docs_site.subcommands(name).items():
            if name != "agent":
                names = {option for parameter in command.params for option in parameter.opts if option.startswith("-")}
                assert all(f"`{option}`" in made[f"reference/cli/{name}.md"] for option in names), path


def test_the_schema_has_every_field_of_a_finding_and_of_a_mark() -> None:
    definitions = SCHEMA["$defs"]
    assert set(definitions["finding"]["required"]) == set(finding_object(FINDING))
    assert set(definitions["mark"]["required"]) == {field.name for field in fields(Mark)}
    assert set(definitions["finding"]["properties"]["kind"]["enum"]) == set(Kind)
    assert set(SCHEMA["properties"]["state"]["enum"]) == {*RunState, None}


def test_the_schema_has_every_field_of_a_report() -> None:
    made = report_object(Report(run_id="r", attempt=0, window=FINDING.window, num_steps=2, num_ranks=2, findings=()))
    assert set(SCHEMA["required"]) == set(made) == set(SCHEMA["properties"])


def test_findings_page_names_every_field_and_kind() -> None:
    named = set(re.findall(r"`([\w-]+)`", PAGE))
    assert named >= {*SCHEMA["required"], *finding_object(FINDING), *Kind}


def test_tools_guide_names_every_operation_and_parameter() -> None:
    guide = (DOCS / "guides" / "tools.md").read_text()
    for operation in OPERATIONS:
        (row,) = (line for line in guide.splitlines() if line.startswith(f"| `{operation.name}` |"))
        named = set(re.findall(r"`([\w-]+)`", row)) | {"run", "attempt"}
        assert named >= set(operation.parameters.model_fields), operation.name


def test_extension_points_named_in_the_docs_exist() -> None:
    for page in (ROOT / "CONTRIBUTING.md", DOCS / "extending.md"):
        for name, path in re.findall(r"`(\w+)` in `([\w/]+\.py)`", page.read_text()):
            assert re.search(rf"\b{name}\b", (ROOT / path).read_text()), f"{page.name}: {name} in {path}"
