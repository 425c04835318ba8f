"""The techniques of MegaScale (arXiv 2402.15627, section 3), each as options of `rankscope train`.

row 0   baseline          --block serial   --window 0    --overlap none   ...
row 1   parallel block    --block parallel --window 0    --overlap none
row 2   sliding window    --block parallel --window 64   --overlap none
row 3   overlap of tp     --block parallel --window 64   --overlap tp
row 4   overlap of pp     --block parallel --window 64   --overlap tp,pp

`rankscope ablate` trains the rows and measures what each technique gains.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from telemetry.errors import UsageError
from trainer.config import TrainConfig

Words = tuple[str, ...]
BASELINE = "baseline"
NO_OVERLAP = ("--overlap", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Technique:
    """A technique of the trainer that can be switched on and off."""

    name: str
    title: str
    switch: str
    """Techniques with the same switch change the same options."""
    off: Words
    """Options of `rankscope train` without the technique."""
    on: Callable[[TrainConfig, Words], Words]
    """Returns the options with the technique. Arguments: the recipe, and the options of its switch in the row
    before."""
    suits: Callable[[TrainConfig], bool] = lambda config: True
    """Returns whether a recipe can use the technique on any machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A training of an ablation. ``options``: those of `rankscope train` for all techniques up to this row."""

    number: int
    title: str
    options: Words


def _overlap(axis: str) -> Technique:
    def on(_: TrainConfig, before: Words) -> Words:
        axes = [] if before == NO_OVERLAP else [before[1]]
        return "--overlap", ",".join([*axes, axis])

    return Technique(
        name=f"overlap-{axis}",
        title=f"overlap of {axis}",
        switch="overlap",
        off=NO_OVERLAP,
        on=on,
        suits=lambda config: getattr(config.parallel, axis) > 1,
    )


def _window(config: TrainConfig, _: Words) -> Words:
    """The options for the window of the recipe, or for a quarter of the sequence if the recipe has none."""
    return "--window", str(config.model.window or config.model.sequence_length // 4)


def _lamb(config: TrainConfig, _: Words) -> Words:
    """The options for LAMB with four times the batch."""
    return "--optimizer", "lamb", "--microbatches", str(4 * config.parallel.num_microbatches)


TECHNIQUES = (
    Technique(
        name="parallel-block",
        title="parallel block",
        switch="block",
        off=("--block", "serial"),
        on=lambda config, before: ("--block", "parallel"),
    ),
    Technique(
        name="fused-projection",
        title="fused projection",
        switch="projection",
        off=("--separate-projections",),
        on=lambda config, before: ("--fused-projection",),
    ),
    Technique(name="window", title="sliding window", switch="window", off=("--window", "0"), on=_window),
    _overlap("tp"),
    _overlap("pp"),
    _overlap("dp"),
    Technique(
        name="shared-loader",
        title="shared loader",
        switch="loader",
        off=("--no-shared-loader",),
        on=lambda config, before: ("--shared-loader",),
    ),
    Technique(
        name="compile",
        title="compiled blocks",
        switch="compile",
        off=("--no-compile",),
        on=lambda config, before: ("--compile",),
        suits=lambda config: config.device == "cuda" and config.parallel.tp == 1,
    ),
    Technique(name="lamb", title="LAMB, batch x4", switch="optimizer", off=("--optimizer", "adamw"), on=_lamb),
)
"""All techniques, in the order of table 3 of MegaScale."""
BY_NAME = {technique.name: technique for technique in TECHNIQUES}


def rows_of(config: TrainConfig, names: Iterable[str] | None = None) -> tuple[Row, ...]:
    """The rows of an ablation: the baseline without any technique, then one technique more in each row.

    Args:
        config: the recipe, with the grid of the training.
        names: names of the techniques, in order. If None, all techniques that suit the recipe.

    Raises:
        UsageError: a technique is unknown or named twice, or ``names`` is empty.
    """
    chosen = _chosen(config, names)
    options = {technique.switch: technique.off for technique in TECHNIQUES}
    rows = [Row(number=0, title=BASELINE, options=_joined(options.values()))]
    for number, technique in enumerate(chosen, 1):
        options[technique.switch] = technique.on(config, options[technique.switch])
        rows.append(Row(number=number, title=technique.title, options=_joined(options.values())))
    return tuple(rows)


def _chosen(config: TrainConfig, names: Iterable[str] | None) -> list[Technique]:
    if names is None:
        return [technique for technique in TECHNIQUES if technique.suits(config)]
    given = list(names)
    unknown = [name for name in given if name not in BY_NAME]
    if unknown or len(set(given)) < len(given) or not given:
        what = f"unknown technique {unknown[0]!r}" if unknown else "a technique is named twice, or none is named"
        raise UsageError(what, hint=f"use some of {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in given]


def _joined(options: Iterable[Words]) -> Words:
    return tuple(word for words in options for word in words)
