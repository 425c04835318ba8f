"""Runs a script on two ranks. They are forked from one interpreter that has loaded what the script imports.

harness --> python forked_ranks.py FOLDER SCRIPT ARGUMENTS    imports torch, and rankscope begins to wait for a rank
                |-- fork --> rank 0    FOLDER/rank-0.out, FOLDER/rank-0.error
                '-- fork --> rank 1
"""

import gc
import os
import runpy
import signal
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path

import torch.multiprocessing

NUM_RANKS = 2


def run_forked(
    folder: Path, environment: dict[str, str], script: str, *arguments: str, python: str, limit_s: float
) -> list[tuple[str, str]]:
    """What each rank wrote to stdout and to stderr. All ranks must succeed."""
    command = [python, __file__, str(folder), script, *arguments]
    ended = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False
    )
    files = [[_output(folder, rank, name) for name in ("out", "error")] for rank in range(NUM_RANKS)]
    assert ended.returncode == 0, (ended.stderr, [path.read_text() for of_rank in files for path in of_rank])
    return [(out.read_text(), error.read_text()) for out, error in files]


def main(folder: str, script: str, *arguments: str) -> int:
    """Exit status of the first rank that fails, otherwise 0."""
    _load(script)
    children: list[int] = []
    for rank in range(NUM_RANKS):
        if child := os.fork():
            children.append(child)
        else:
            return _become_rank(Path(folder), rank, [script, *arguments])
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return next(filter(None, statuses), 0)


def _load(script: str) -> None:
    """Import what the ranks need. Garbage collections would find nothing, and would copy shared memory in each rank."""
    gc.disable()
    runpy.run_path(script, run_name="imports")
    import_module("torch._dynamo")  # otherwise the optimizer of each rank imports it, which takes seconds
    gc.freeze()
    gc.enable()


def _become_rank(folder: Path, rank: int, command: list[str]) -> int:
    torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)
    for number, name in ((1, "out"), (2, "error")):
        os.dup2(os.open(_output(folder, rank, name), os.O_WRONLY | os.O_CREAT), number)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    sys.argv = command
    try:
        runpy.run_path(command[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _output(folder: Path, rank: int, name: str) -> Path:
    return folder / f"rank-{rank}.{name}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
