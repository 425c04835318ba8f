"""The vocabulary of spans: stages, their classes, and the streams they run on.

Rank files and the store hold the codes. A code is never reused, and a name never changes; new stages are appended.
"""

from enum import IntEnum, unique


class StageClass(IntEnum):
    """The kind of work of a stage."""

    COMPUTE = 0
    COMMUNICATION = 1
    HOST = 2
    CHECKPOINT = 3


class Stream(IntEnum):
    """The queue of work of a span. Spans of one stream on one rank run in order."""

    COMPUTE = 0
    TP = 1
    DP = 2
    PP_FORWARD = 3
    PP_BACKWARD = 4
    HOST = 5
    CP = 6
    EP = 7

    @property
    def label(self) -> str:
        """The displayed name, e.g. ``pp-forward``."""
        return self.name.lower().replace("_", "-")


class SpanClock(IntEnum):
    """The clock of a span."""

    HOST = 0
    """CLOCK_MONOTONIC of the host. In records of older versions, spans of a device have it too, if ``issue_ns`` > 0."""
    DEVICE = 1
    """Two events of the device on the stream that was current at the begin and at the end."""
    TRANSFER = 2
    """Events of the device. The end is on the stream of the transfer, independent of when the rank waited for it."""


@unique
class Stage(IntEnum):
    """A stage of a training step, named as NDTimeline and the published traces name it."""

    label: str
    stage_class: StageClass
    stream: Stream

    def __new__(cls, code: int, label: str, stage_class: StageClass, stream: Stream) -> "Stage":
        stage = int.__new__(cls, code)
        stage._value_ = code
        stage.label = label
        stage.stage_class = stage_class
        stage.stream = stream
        return stage

    STEP = 1, "step", StageClass.HOST, Stream.HOST
    DATA_LOAD = 2, "data-load", StageClass.HOST, Stream.HOST
    FORWARD_COMPUTE = 3, "forward-compute", StageClass.COMPUTE, Stream.COMPUTE
    BACKWARD_COMPUTE = 4, "backward-compute", StageClass.COMPUTE, Stream.COMPUTE
    FORWARD_SEND = 5, "forward-send", StageClass.COMMUNICATION, Stream.PP_FORWARD
    FORWARD_RECV = 6, "forward-recv", StageClass.COMMUNICATION, Stream.PP_FORWARD
    BACKWARD_SEND = 7, "backward-send", StageClass.COMMUNICATION, Stream.PP_BACKWARD
    BACKWARD_RECV = 8, "backward-recv", StageClass.COMMUNICATION, Stream.PP_BACKWARD
    PARAMS_ALL_GATHER = 9, "params-all-gather", StageClass.COMMUNICATION, Stream.DP
    GRADS_REDUCE_SCATTER = 10, "grads-reduce-scatter", StageClass.COMMUNICATION, Stream.DP
    GRADS_ALL_REDUCE = 11, "grads-all-reduce", StageClass.COMMUNICATION, Stream.DP
    EMBEDDING_GRADS_ALL_REDUCE = 12, "embedding-grads-all-reduce", StageClass.COMMUNICATION, Stream.DP
    LAYERNORM_GRADS_ALL_REDUCE = 13, "layernorm-grads-all-reduce", StageClass.COMMUNICATION, Stream.TP
    TP_ALL_GATHER = 14, "tp-all-gather", StageClass.COMMUNICATION, Stream.TP
    TP_REDUCE_SCATTER = 15, "tp-reduce-scatter", StageClass.COMMUNICATION, Stream.TP
    TP_ALL_REDUCE = 16, "tp-all-reduce", StageClass.COMMUNICATION, Stream.TP
    OPTIMIZER = 17, "optimizer", StageClass.COMPUTE, Stream.COMPUTE
    OPTIMIZER_CLIP = 18, "optimizer-clip-main-grad", StageClass.COMPUTE, Stream.COMPUTE
    GC = 19, "gc", StageClass.HOST, Stream.HOST
    CHECKPOINT_SNAPSHOT = 20, "checkpoint-snapshot", StageClass.CHECKPOINT, Stream.HOST
    CHECKPOINT_WRITE = 21, "checkpoint-write", StageClass.CHECKPOINT, Stream.HOST
    EVALUATION = 22, "evaluation", StageClass.COMPUTE, Stream.COMPUTE
    SEPARATE_GRADS_ALL_REDUCE = 23, "separate-grads-all-reduce", StageClass.COMMUNICATION, Stream.DP
    CP_SEND_RECV = 24, "cp-send-recv", StageClass.COMMUNICATION, Stream.CP
    CP_ALL_GATHER = 25, "cp-all-gather", StageClass.COMMUNICATION, Stream.CP
    CP_REDUCE_SCATTER = 26, "cp-reduce-scatter", StageClass.COMMUNICATION, Stream.CP
    CP_ALL_REDUCE = 27, "cp-all-reduce", StageClass.COMMUNICATION, Stream.CP
    CP_ALL_TO_ALL = 28, "cp-all-to-all", StageClass.COMMUNICATION, Stream.CP
    EP_ALL_TO_ALL = 29, "ep-all-to-all", StageClass.COMMUNICATION, Stream.EP
    EP_ALL_GATHER = 30, "ep-all-gather", StageClass.COMMUNICATION, Stream.EP
    EP_REDUCE_SCATTER = 31, "ep-reduce-scatter", StageClass.COMMUNICATION, Stream.EP
    TP_ALL_TO_ALL = 32, "tp-all-to-all", StageClass.COMMUNICATION, Stream.TP
    BROADCAST = 33, "broadcast", StageClass.COMMUNICATION, Stream.DP
    FORWARD_BACKWARD = 34, "forward-backward", StageClass.HOST, Stream.HOST
    ROLLOUT = 35, "rollout", StageClass.COMPUTE, Stream.COMPUTE
    COMMUNICATION_WAIT = 36, "communication-wait", StageClass.HOST, Stream.HOST


for _stage in Stage:  # Python 3.11 answers Stage.STEP by a descriptor, in 60 ns: too long for the hot path
    type.__setattr__(Stage, _stage.name, _stage)

STAGE_BY_LABEL: dict[str, Stage] = {stage.label: stage for stage in Stage}
"""``forward-compute`` -> ``Stage.FORWARD_COMPUTE``."""

STAGE_BY_CODE: dict[int, Stage] = {int(stage): stage for stage in Stage}
"""``3`` -> ``Stage.FORWARD_COMPUTE``."""
