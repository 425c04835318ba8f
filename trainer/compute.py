"""Settings of how a rank computes. No setting changes the model.

Torch is not imported here, so that a command line can show its settings at once.
"""

from dataclasses import dataclass

from trainer.choices import Precision, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeConfig:
    """Precision, recomputation and compilation of the blocks."""

    precision: Precision = "float32"
    """Precision of the compute. Parameters, reductions and the optimiser use float32. With ``float8``, the matrix
    products of the blocks use float8 and the rest uses bfloat16."""
    recompute: Recompute = "none"
    """Activations of a block that are computed again in the backward instead of being kept: none, all, or those that
    are cheap to compute for their size (``trainer/model/recompute.py``)."""
    compile: bool = False
    """Compile each block with ``torch.compile``."""

    @property
    def half(self) -> bool:
        """Whether activations are bfloat16."""
        return self.precision != "float32"
