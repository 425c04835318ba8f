"""Units of measured values, from the ends of their names: ``gemm_tflops`` is in TFLOP/s."""

_UNITS = {"_gb_s": "GB/s", "_tflops": "TFLOP/s", "_gib": "GiB"}


def with_unit(value: float, name: str) -> str:
    """``0.0591 TFLOP/s``: three significant digits, and the unit of the measurement ``name`` if it is known."""
    unit = next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")
    return f"{value:.3g} {unit}".rstrip()
