"""Where tests go at 12,288 ranks: views that are opened, and pages whose controls are used one after the other."""

from tests.benchmarks.large_runs import LARGE, LONG, LONG_STEPS, SLOW_RANK, STUCK
from tests.browser.page_walks import Use, clicked, followed, gone_back, listed, picked, typed

NO_STEPS, EVERY_STEP = r"^(?!.*steps=)", f"steps=0-{LONG_STEPS - 1}"
VIEWS = {  # those that no walk below comes to, too
    "runs": "view=runs",
    "overview": f"run={LARGE}",
    "overview of a hang": f"run={STUCK}",
    "heat map": f"view=heatmap&run={LARGE}",
    "heat map of 100 steps": f"view=heatmap&run={LONG}",
    "heat map of 1,000 steps": f"view=heatmap&run={LONG}&{EVERY_STEP}",
    "timeline of replicas": f"view=timeline&run={LARGE}&group=dp&rank=4001",
    "timeline of neighbours": f"view=timeline&run={LARGE}&group=all&rank=4242",
    "grid": f"view=grid&run={LARGE}",
    "grid by time in 3D": f"view=grid&run={LARGE}&colour=metric&form=3d",
    "grid of a hang": f"view=grid&run={STUCK}",
    "grid of a hang in 3D": f"view=grid&run={STUCK}&form=3d",
    "hang": f"view=hang&run={STUCK}",
    "fleet, network": f"view=fleet&run={LARGE}&family=network",
    "fleet, hosts": f"view=fleet&run={LONG}&family=host&{EVERY_STEP}",
    "clock": f"view=clock&run={LARGE}",
    "alerts": "view=alerts",
    "what if": f"view=whatif&run={LARGE}",
    "grid by blame in 3D": f"view=grid&run={LARGE}&colour=blame&form=3d",
}
STEPS = (
    typed("first", "20", "steps=20-"),
    typed("last", "23", "steps=20-23"),
    followed("All steps", "steps=0-(&|$)"),
    followed("Newest", NO_STEPS),
)
TIMES = (
    picked("metric", "Milliseconds", "metric=ms"),
    picked("clock", "Wall time", "time=wall"),
    listed("stage", "optimizer", "stage=optimizer"),
)
WALKS: dict[str, tuple[Use, ...]] = {
    "view=runs": (
        typed("find", "lar", "find=lar"),
        followed("Ranks", "order=ranks"),
        followed("Started", "order=started"),
        followed(LARGE, f"view=overview&run={LARGE}"),
    ),
    f"view=heatmap&run={LARGE}": (
        *TIMES,
        *STEPS,
        clicked("cells", 100, 12, "view=timeline.*step=12"),
        gone_back("view=heatmap"),
        followed("In the grid", "view=grid.*colour=metric"),
    ),
    f"view=timeline&run={LARGE}&group=pp&rank=4242&step=12": (
        picked("group", "Data", "group=dp"),
        picked("group", "Tensor", "group=tp"),
        picked("group", "All ranks", "group=all"),
        picked("group", "Pipeline", "group=pp"),
        typed("rank", "801", "rank=801"),
        typed("step", "10", "step=10"),
        followed("Next", "step=11"),
        followed("Previous", "step=10"),
        followed("Typical", "step=(?!10)"),
        followed("Slowest", "step=11(&|$)"),
        followed("Newest", "^(?!.*step=)"),
        picked("ideal", "Below", "ideal=shown"),
        picked("ideal", "Hidden", "^(?!.*ideal=)"),
        followed("In the grid", "view=grid"),
    ),
    f"view=grid&run={LARGE}": (
        typed("rank", "4242", "rank=4242"),
        picked("form", "3D", "form=3d"),
        picked("colour", "Time of a stage", "colour=metric"),
        picked("form", "Slices", "^(?!.*form=)"),
        *TIMES,
        *STEPS[:2],
        picked("colour", "Blame", "colour=blame"),
        clicked("grid", 30, 30, "rank=(?!4242)"),
        picked("colour", "State", "^(?!.*colour=)"),
        followed("replicas", "view=timeline.*group=dp"),
    ),
    f"view=hang&run={STUCK}": (
        typed("rank", "12", "rank=12"),
        clicked("grid", 30, 30, "rank=(?!12)"),
        followed(f"rank {SLOW_RANK}", f"rank={SLOW_RANK}"),
        followed("Turn it in 3D", "view=grid.*form=3d"),
    ),
    f"view=whatif&run={LARGE}&steps=20-": (
        typed("last", "23", "steps=20-23"),
        clicked("workers", 0, 30, "view=timeline"),
        gone_back("view=whatif"),
        followed("heat map", "view=heatmap"),
        gone_back("view=whatif"),
        followed("In the grid", "view=grid.*colour=blame"),
    ),
    f"view=fleet&run={LARGE}": (
        listed("host", "gpu-0530", "host=gpu-0530"),
        picked("family", "Host", "family=host"),
        picked("family", "GPU", "family=gpu"),
        picked("family", "Network", "family=network"),
        *STEPS,
        followed("gpu-0100", "host=gpu-0100"),
        followed("Its ranks in the grid", "view=grid.*rank=800"),
        gone_back("view=fleet"),
        followed("Clock of the host", "view=clock.*host=gpu-0100"),
    ),
    f"view=clock&run={LARGE}": (
        listed("host", "gpu-1535", "host=gpu-1535"),
        followed("gpu-", "host=gpu-(?!1535)"),
    ),
    f"view=alerts&run={LARGE}": (followed("Runs", "view=runs", within="header"),),
}
