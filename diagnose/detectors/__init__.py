"""The detectors, in the order in which they are asked."""

from diagnose.detectors.compute_straggler import detect_compute_stragglers
from diagnose.detectors.evidence import detect_missing_evidence
from diagnose.detectors.interface import Detector
from diagnose.detectors.stage_imbalance import detect_stage_imbalance

DETECTORS: tuple[Detector, ...] = (detect_compute_stragglers, detect_stage_imbalance, detect_missing_evidence)

__all__ = ["DETECTORS", "Detector"]
