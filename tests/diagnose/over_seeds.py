"""One test over many seeds: it runs its body for each seed and names every seed that fails."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature

import pytest

IN_EVERY_RUN = 1
"""`make test` runs this number of seeds. `make long` runs the others."""


def over_seeds(seeds: Iterable[int]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test with the parameter ``seed``. Its other parameters remain fixtures or parametrized values."""
    every = list(seeds)
    first, others = every[:IN_EVERY_RUN], every[IN_EVERY_RUN:]
    parts = [pytest.param(first, id=_name(first))]
    if others:
        parts.append(pytest.param(others, id=_name(others), marks=pytest.mark.long))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def united(*, seeds: Sequence[int], **values: object) -> None:
            failures: dict[int, AssertionError] = {}
            for seed in seeds:
                try:
                    test(seed=seed, **values)
                except AssertionError as error:
                    failures[seed] = error
            if failures:
                first_error = next(iter(failures.values()))
                raise AssertionError(f"{len(failures)} of {len(seeds)} seeds fail: {[*failures]}") from first_error

        parameters = [each for each in signature(test).parameters.values() if each.name != "seed"]
        parameters.append(Parameter("seeds", Parameter.KEYWORD_ONLY))
        vars(united)["__signature__"] = Signature(parameters)
        decorated: Callable[..., None] = pytest.mark.parametrize("seeds", parts)(united)
        return decorated

    return decorate


def _name(seeds: Sequence[int]) -> str:
    return f"seeds {seeds[0]}-{seeds[-1]}"
