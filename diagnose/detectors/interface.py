"""The seam of detectors: a pure function from a view to findings.

It opens nothing, keeps nothing and may stay silent; what evidence is missing, ``evidence.py`` says for all of them, in
a finding of kind ``insufficient-evidence``. It reads nothing but the view. Register a new one in
``diagnose/detectors/__init__.py``.
"""

from collections.abc import Callable

from diagnose.findings import Finding
from diagnose.model.view import RunView

Detector = Callable[[RunView], list[Finding]]
