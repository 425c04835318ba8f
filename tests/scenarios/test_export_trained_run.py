"""`rankscope export perfetto` as a user runs it, for a trained run in the folder of an embedded store."""

import json
from pathlib import Path

from telemetry.stores.open import open_store
from telemetry.topology import Topology
from tests.diagnose.trace.counted import Window, num_collective_arrows, num_spans, num_transfers
from tests.diagnose.trace.opened import opened_json, opened_protobuf
from tests.scenarios.command import rankscope
from tests.scenarios.demo_run import Demo

GRID = Topology(dp=2, pp=2, tp=2)
STEPS = ("--first-step", 4, "--last-step", 6)
"""The other steps have the same operations."""


def test_export_of_a_trained_run_has_the_same_spans_and_flows_in_both_formats(
    demo_of_a_slow_rank: Demo, tmp_path: Path
) -> None:
    """From a copy: this process, which opens the store, creates files that other users can read."""
    demo = demo_of_a_slow_rank.copied_to(tmp_path / "demo")
    address, run = f"embedded:{demo.out / 'store'}", demo.answer["run"]
    openers = {"json": opened_json, "protobuf": opened_protobuf}
    report = {}
    for form, opener in openers.items():
        options = ("--store", address, "--out", tmp_path / form, "--format", form, "--json")
        answer = rankscope("export", "perfetto", run, *STEPS, *options)
        assert answer.status == 0, answer.error
        report[form] = json.loads(answer.out)
        trace = opener(tmp_path / form)
        trace.check_nesting()
        assert (report[form]["spans"], report[form]["flows"]) == (len(trace.slices), len(trace.arrows))
    assert {name: report["json"][name] for name in ("spans", "flows", "ranks")} == {
        name: report["protobuf"][name] for name in ("spans", "flows", "ranks")
    }
    window = Window(run=run, first_step=report["json"]["first_step"], last_step=report["json"]["last_step"])
    opened = open_store(address, for_reading=True)
    try:
        assert report["json"]["spans"] == num_spans(opened, window) > 0
        assert report["json"]["transfers"] + report["json"]["flows_left_out"] >= num_transfers(opened, window) > 0
        counted = num_transfers(opened, window) + num_collective_arrows(opened, window, GRID)
    finally:
        opened.close()
    assert report["json"]["flows"] + report["json"]["flows_left_out"] == counted
