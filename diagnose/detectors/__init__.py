"""The detectors, in the order in which they run.

In a job with several roles, each detector sees one role after the other, so that ranks are compared within a role. The
detectors in ``OF_WHOLE_JOB`` see all roles at once.
"""

from diagnose.detectors.checkpoint_slow import detect_slow_checkpoints
from diagnose.detectors.compute_straggler import detect_compute_stragglers
from diagnose.detectors.data_imbalance import detect_data_imbalance
from diagnose.detectors.data_stall import detect_data_stall
from diagnose.detectors.evidence import Detector, detect_missing_evidence
from diagnose.detectors.expert_imbalance import detect_expert_imbalance
from diagnose.detectors.gpu_error import detect_gpu_errors
from diagnose.detectors.gpu_throttled import detect_gpu_throttled
from diagnose.detectors.host_contention import detect_host_contention
from diagnose.detectors.job_restarted import detect_job_restarted
from diagnose.detectors.late_launch import detect_late_launch
from diagnose.detectors.loss_anomaly import detect_loss_anomaly
from diagnose.detectors.mfu_decline import detect_mfu_decline
from diagnose.detectors.nic_flap import detect_nic_flap
from diagnose.detectors.role_idle import detect_idle_roles
from diagnose.detectors.rollout_tail import detect_rollout_tail
from diagnose.detectors.slow_link import detect_slow_link
from diagnose.detectors.stage_imbalance import detect_stage_imbalance
from diagnose.detectors.unlike_host import detect_unlike_host

DETECTORS: tuple[Detector, ...] = (
    detect_loss_anomaly,
    detect_gpu_errors,
    detect_gpu_throttled,
    detect_compute_stragglers,
    detect_host_contention,
    detect_stage_imbalance,
    detect_data_imbalance,
    detect_expert_imbalance,
    detect_rollout_tail,
    detect_idle_roles,
    detect_data_stall,
    detect_late_launch,
    detect_slow_link,
    detect_nic_flap,
    detect_slow_checkpoints,
    detect_unlike_host,
    detect_mfu_decline,
    detect_job_restarted,
    detect_missing_evidence,
)

OF_WHOLE_JOB = frozenset(
    {
        *(detect_loss_anomaly, detect_gpu_errors, detect_nic_flap, detect_mfu_decline, detect_job_restarted),
        *(detect_rollout_tail, detect_idle_roles, detect_missing_evidence),
    }
)

__all__ = ["DETECTORS", "OF_WHOLE_JOB", "Detector"]
