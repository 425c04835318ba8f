"""One test over many cases: it runs its body for each case and names every case that fails.

A case of a parametrized test takes 4 ms of processor time beside its body, and 1 ms or more in each worker that
collects it. That is more than most cases of pure functions take.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature

import pytest

Test = Callable[..., None]
LONGEST = 200
"""Characters of a value in the name of its case."""


def each_case(names: str | tuple[str, ...], values: Iterable[object]) -> Callable[[Test], Test]:
    """Use instead of ``pytest.mark.parametrize``, if no case changes what the other cases get from fixtures."""
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [dict(zip(listed, value if len(listed) > 1 else (value,), strict=True)) for value in values]  # type: ignore[arg-type]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def united(**others: object) -> None:
            failures: dict[str, BaseException] = {}
            for case in cases:
                try:
                    test(**case, **others)
                except (Exception, pytest.fail.Exception) as error:
                    failures[", ".join(f"{name}={value!r:.{LONGEST}}" for name, value in case.items())] = error
            if failures:
                first_error = next(iter(failures.values()))
                raise AssertionError(f"{len(failures)} of {len(cases)} cases fail: {[*failures]}") from first_error

        whole = signature(test)
        kept = [each for each in whole.parameters.values() if each.name not in listed]
        vars(united)["__signature__"] = whole.replace(parameters=kept)
        return united

    return decorate
