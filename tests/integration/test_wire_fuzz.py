"""Readers of untrusted data get thousands of bad inputs in a separate process, which must survive."""

import json

from tests.forkserver import output_of
from ui.cli.commands.import_run import Format

COUNT = 400
FILES = 25


def test_bad_inputs_do_not_crash_block_or_grow_the_wire_readers() -> None:
    """Without a collector: ``test_security`` and ``test_hostile_batches`` send such inputs to one."""
    options = ("--count", str(COUNT), "--http", "0", "--seed", "1")
    outcome = json.loads(output_of("-m", "tests.integration.wire_fuzz", *options))
    assert outcome["read"] > COUNT // 100
    assert outcome["read"] + outcome["refused"] == COUNT


def test_damaged_files_do_not_crash_or_block_an_importer_and_are_not_executed() -> None:
    outcome = json.loads(output_of("-m", "tests.integration.import_fuzz", "--count", str(FILES), "--seed", "1"))
    assert outcome["read"] + outcome["refused"] == FILES * len(Format)
    assert all(outcome["by_format"].get(form.value) for form in Format), outcome["by_format"]
