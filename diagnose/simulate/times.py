"""What one compute takes."""

from dataclasses import dataclass

from diagnose.simulate.scene import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeTimes:
    """Of one forward or backward in every lane, seconds."""

    wall_s: Floats
    """From its begin to its collective."""
    cpu_s: Floats
    collection_s: Floats
    """Garbage collection that both include."""
