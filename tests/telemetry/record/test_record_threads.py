"""Recording from several threads and several processes."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

import telemetry
from telemetry.stages import Stage
from tests.deadline import until
from tests.scenarios.command import run_code
from tests.telemetry.recording import recorded, session

THREADS, EACH = 4, 20_000


def test_spans_of_many_threads_are_recorded_in_order_or_counted_as_dropped(tmp_path: Path) -> None:
    def work(peer: int) -> None:
        for number in range(EACH):
            telemetry.record_span(Stage.TP_ALL_REDUCE, number, 1, peer=peer, op_seq=number)

    with session(tmp_path) as started:
        threads = [threading.Thread(target=work, args=(peer,)) for peer in range(THREADS)]
        for thread in threads:
            thread.start()
        for _ in range(EACH):
            with telemetry.span(Stage.DATA_LOAD):
                pass
        for thread in threads:
            thread.join()
    spans, dropped = recorded(tmp_path).spans, started.stats().dropped
    assert len(spans) + dropped == (THREADS + 1) * EACH
    assert len(spans) > EACH
    for peer in range(THREADS):
        numbers = spans[(spans["peer"] == peer) & (spans["stage"] == Stage.TP_ALL_REDUCE)]["op_seq"]
        assert np.all(np.diff(numbers.astype(np.int64)) > 0)


def test_spans_of_another_thread_do_not_corrupt_those_of_the_training_thread(tmp_path: Path) -> None:
    stop = threading.Event()

    def meddle() -> None:
        while not stop.is_set():
            with telemetry.span(Stage.CHECKPOINT_WRITE), telemetry.span(Stage.CHECKPOINT_SNAPSHOT):
                pass

    with session(tmp_path) as started:
        thread = threading.Thread(target=meddle)
        thread.start()
        for number in range(20_000):
            with telemetry.span(Stage.OPTIMIZER_CLIP, microbatch=number % 1000), telemetry.span(Stage.DATA_LOAD):
                pass
        stop.set()
        thread.join()
    stats = started.stats()
    found = recorded(tmp_path)
    assert len(found.records) == stats.records
    assert set(found.stages) <= {"optimizer-clip-main-grad", "data-load", "checkpoint-write", "checkpoint-snapshot"}
    assert np.all(found.spans["duration_ns"] >= 0)


def test_a_forked_child_does_not_write_into_its_parents_file(tmp_path: Path) -> None:
    script = f"""
import os, telemetry
telemetry.start("test", spool={str(tmp_path)!r}, agent=False)
with telemetry.span("data-load"):
    pass
child = os.fork()
if child == 0:
    for _ in range(100):
        with telemetry.step(9), telemetry.span("optimizer"):
            telemetry.mark("from the child")
    telemetry.stop()
    os._exit(0)
os.waitpid(child, 0)
with telemetry.span("data-load"):
    pass
os.kill(os.getpid(), 9)
"""
    assert run_code(script).status == -signal.SIGKILL
    found = recorded(tmp_path)
    assert found.stages == ["data-load", "data-load"]
    assert (found.reader.live().ended, found.reader.live().step) == (False, -1)


def test_a_forked_child_can_record_as_a_rank_of_its_own(tmp_path: Path) -> None:
    with session(tmp_path):
        child = os.fork()
        if child == 0:
            telemetry.start("test", spool=tmp_path, topology=telemetry.Topology(dp=2), rank=1, agent=False)
            with telemetry.span(Stage.OPTIMIZER):
                pass
            telemetry.stop()
            os._exit(0)
        os.waitpid(child, 0)
        with telemetry.span(Stage.DATA_LOAD):
            pass
    assert recorded(tmp_path, 0).stages == ["data-load"]
    assert recorded(tmp_path, 1).stages == ["optimizer"]


def test_rank_restarts_while_a_forked_worker_of_its_killed_process_still_runs(tmp_path: Path) -> None:
    life = f"""
import os, sys, telemetry
telemetry.start("test", spool={str(tmp_path)!r}, agent=False)
with telemetry.span("data-load"):
    pass
worker = os.fork()
if worker == 0:
    os.read(0, 1)  # until the test lets go
    os._exit(0)
os.kill(os.getpid(), 9)
"""
    reading, writing = os.pipe()
    try:
        subprocess.run([sys.executable, "-c", life], stdin=reading, check=False, timeout=60)
        until(lambda: _can_record(tmp_path), what="the worker has let go")
    finally:
        os.close(reading)
        os.close(writing)


def _can_record(spool: Path) -> bool:
    with session(spool) as started:
        return started.recording
