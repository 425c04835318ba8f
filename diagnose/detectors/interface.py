"""The seam of detectors: a pure function from a view to findings.

It opens nothing, keeps nothing and may stay silent; where its evidence is missing it returns a finding of kind
``insufficient-evidence`` that says what it would need. It reads nothing but the view. Register a new one in
``diagnose/detectors/__init__.py``.
"""

from collections.abc import Callable

from diagnose.findings import Finding
from diagnose.view import RunView

Detector = Callable[[RunView], list[Finding]]
