"""Names that settings and the options of commands choose from. Nothing else is imported here: a help page loads it."""

from typing import Literal

BlockForm = Literal["parallel", "serial"]
OptimizerName = Literal["adamw", "lamb"]
Precision = Literal["float32", "bfloat16", "float8"]
Recompute = Literal["none", "selective", "full"]
