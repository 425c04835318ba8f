"""One test over many seeds: it runs its body for each seed and names every seed that fails."""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Signature, signature


def over_seeds(seeds: Iterable[int]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test with the parameter ``seed``. Its other parameters remain fixtures or parametrized values."""
    every = list(seeds)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def united(**values: object) -> None:
            failures: dict[int, AssertionError] = {}
            for seed in every:
                try:
                    test(seed=seed, **values)
                except AssertionError as error:
                    failures[seed] = error
            if failures:
                first = next(iter(failures.values()))
                raise AssertionError(f"{len(failures)} of {len(every)} seeds fail: {[*failures]}") from first

        others = [each for each in signature(test).parameters.values() if each.name != "seed"]
        vars(united)["__signature__"] = Signature(others)
        return united

    return decorate
