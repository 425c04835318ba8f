"""The place of a stall is code of the job or of its framework, not a frame that waits or belongs to the recorder."""

from diagnose.hang.place import place_of
from tests.each_case import each_case

WAIT = "wait (threading.py:320)"
RECORDER = "_ending.<locals>.method (telemetry/record/collectives/traced_work.py:128)"
HOOK = "call (/home/me/src/telemetry/attach/seams.py:96)"
OPERATION = ("all_reduce (torch/distributed/distributed_c10d.py:2806)", "wrapper (torch/distributed/c10d_logger.py:83)")
JOB = ("reduce_grads (megatron/core/distributed/grads.py:88)", "train_step (train.py:12)")


@each_case(
    ("stack", "place"),
    [
        ((WAIT, RECORDER, *OPERATION, *JOB), JOB[0]),
        ((RECORDER, HOOK, *JOB), JOB[0]),
        (("futex_wait (libc.so.6)", WAIT, JOB[1]), JOB[1]),
        (
            ("__next__ (torch/utils/data/dataloader.py:701)", HOOK, JOB[1]),
            "__next__ (torch/utils/data/dataloader.py:701)",
        ),
        (("poll (telemetry/sensors.py:3)", JOB[1]), "poll (telemetry/sensors.py:3)"),
        (("_spin (trainer/faults/act.py:107)", JOB[1]), "_spin (trainer/faults/act.py:107)"),
        (("put (my_queue.py:3)",), "put (my_queue.py:3)"),
        ((RECORDER, WAIT), RECORDER),
        ((), ""),
    ],
)
def test_place_is_the_innermost_frame_of_the_job_or_its_framework(stack: tuple[str, ...], place: str) -> None:
    assert place_of(stack) == place
