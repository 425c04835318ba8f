"""The guide of metrics lists every metric with its type and labels, and its rules are valid."""

import re
import subprocess
from pathlib import Path

import pytest

from diagnose.metrics.families import OF_RUNS, OF_STORE
from diagnose.metrics.reading import MAX_RUNS, RECENT_NS
from diagnose.metrics.run_metrics import EVERY_S, MAX_AGE_S, WAIT_S
from telemetry.collector.counters import COUNTERS, QUEUE_BATCHES, QUEUE_BYTES
from tests.docs.pages import DOCS
from tests.parts import require

PAGE = (DOCS / "guides" / "metrics.md").read_text()
IN_CODE = {
    **{gauge.name: ("gauge", ("run", *gauge.labels)) for gauge in OF_RUNS},
    **{gauge.name: ("gauge", ()) for gauge in OF_STORE},
    **{counter.name: ("counter", (counter.label,) if counter.label else ()) for counter in COUNTERS},
    **{name: ("gauge", ()) for name, _ in (QUEUE_BATCHES, QUEUE_BYTES)},
}


def test_tables_of_the_guide_list_every_metric_with_its_type_and_labels() -> None:
    rows = re.findall(r"^\| `(rankscope_\w+)` \| (\w+) \| ([^|]*)\|", PAGE, re.MULTILINE)
    assert {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == IN_CODE
    assert len(rows) == len(IN_CODE)


def test_guide_names_only_metrics_that_exist() -> None:
    assert set(re.findall(r"rankscope_[a-z_]+[a-z]", PAGE)) <= set(IN_CODE)


def test_limits_in_the_guide_match_the_code() -> None:
    assert f"**At most {MAX_RUNS} runs**" in PAGE
    assert f"less than {EVERY_S:.0f} s old. It waits at most {WAIT_S:.0f} s for the store" in PAGE
    assert f"served for {MAX_AGE_S / 60:.0f} minutes" in PAGE
    assert RECENT_NS == 3600 * 10**9
    assert "each run with data in the last hour" in PAGE


@pytest.mark.prometheus
def test_promtool_accepts_the_rules_of_the_guide(tmp_path: Path) -> None:
    (rules,) = re.findall(r"^```\n(groups:\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "rules.yml").write_text(rules)
    command = [require("promtool"), "check", "rules", str(tmp_path / "rules.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"{rules.count('- alert:')} rules found" in checked.stdout
