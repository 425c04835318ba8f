"""A what-if analysis as one JSON object, schema 1."""

from typing import Any

from diagnose.report.as_json import report_object
from diagnose.whatif.conclude import Conclusion

FIGURES = (
    *(
        "step_time_s",
        "slowdown",
        "waste",
        "by_stage",
        "by_pp",
        "by_dp",
        "by_worker",
        "m_w",
        "m_s",
        "per_step",
        "fixing_workers",
    ),
    *("steps_replayed", "steps_left_out", "operations"),
)


def whatif_object(conclusion: Conclusion) -> dict[str, Any]:
    """The report's object, and the figures: ratios to the ideal step time; ``by_worker`` is [dp][pp].

    ``step_time_s``: as measured, over the replayed steps (``diagnose/model/step_time.py``).
    ``fixing_workers``: the slowdown left, and the share of it gone, with the so many worst workers as good as ideal.
    Figures are null where nothing could be replayed, or the replay misses the measured steps by more than 5%; ``m_w``,
    ``m_s`` and ``fixing_workers`` also below a slowdown of 1.03.
    """
    return {
        **report_object(conclusion.report),
        **_figures(conclusion),
        "replay_error": conclusion.replay_error,
        "what_if": [
            {"change": fix.change, "seconds_saved": fix.saved_s, "share_of_step_time": fix.share}
            for fix in conclusion.fixes
        ],
    }


def _figures(conclusion: Conclusion) -> dict[str, Any]:
    figures = conclusion.figures
    if figures is None or not conclusion.holds:
        return dict.fromkeys(FIGURES)
    per_step = zip(conclusion.steps.tolist(), (figures.step_s / figures.ideal_step_s).tolist(), strict=True)
    return {
        "step_time_s": conclusion.step_s,
        "slowdown": figures.slowdown,
        "waste": figures.waste,
        "by_stage": dict(figures.by_stage),
        "by_pp": {str(pp): ratio for pp, ratio in enumerate(figures.by_pp.tolist())},
        "by_dp": {str(dp): ratio for dp, ratio in enumerate(figures.by_dp.tolist())},
        "by_worker": figures.by_worker.tolist(),
        "m_w": figures.m_w,
        "m_s": figures.m_s,
        "per_step": {str(step): ratio for step, ratio in per_step},
        "fixing_workers": _fixing(conclusion),
        "steps_replayed": len(figures.rows),
        "steps_left_out": figures.num_left_out,
        "operations": figures.num_operations,
    }


def _fixing(conclusion: Conclusion) -> list[dict[str, float]] | None:
    worst, figures = conclusion.worst_workers, conclusion.figures
    if worst is None or figures is None:
        return None
    ideal_s = float(figures.ideal_step_s.mean())
    return [
        {"workers": number, "slowdown": step_s / ideal_s, "share_of_slowdown": gone}
        for number, step_s, gone in zip(
            worst.num_fixed.tolist(), worst.step_s.tolist(), worst.share_gone(ideal_s).tolist(), strict=True
        )
    ]
