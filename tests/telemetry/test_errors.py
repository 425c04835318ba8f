"""Errors are sent between processes without loss."""

import errno
import pickle
from collections.abc import Iterator
from typing import Any

from telemetry.errors import JumpError, RankscopeError, UnreachableError
from tests.each_case import each_case

MORE: dict[type[RankscopeError], dict[str, Any]] = {
    JumpError: {"stored": {3: 7}},
    UnreachableError: {"retry_after_s": 2.0},
}


def tree(top: type[RankscopeError]) -> Iterator[type[RankscopeError]]:
    yield top
    for below in top.__subclasses__():
        if below.__module__ == top.__module__:
            yield from tree(below)


@each_case("kind", sorted(set(tree(RankscopeError)), key=str))
def test_an_error_is_the_same_after_pickling(kind: type[RankscopeError]) -> None:
    error = kind("what\nwhere", hint="what next", **MORE.get(kind, {}))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
    if isinstance(error, OSError):
        assert (copy.errno, copy.strerror) == (errno.EPERM, "what\nwhere")
