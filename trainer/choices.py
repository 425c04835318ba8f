"""Names to choose from in settings and on the command line. Nothing else is imported, so that ``--help`` is fast."""

from typing import Literal

DeviceName = Literal["cpu", "cuda"]
BlockForm = Literal["parallel", "serial"]
ScheduleName = Literal["1f1b", "zero-bubble"]
OptimizerName = Literal["adamw", "lamb"]
Precision = Literal["float32", "bfloat16", "float8"]
Recompute = Literal["none", "selective", "full"]
