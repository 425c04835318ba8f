"""What nodes write for each other in the store. JSON: whoever reaches the port could put anything there.

seat/I       how often node I has come (once)
here/I       its host and devices
plan/R       the pairs of round R, or the verdict
share/R/I    what node I did in it
read/I       node I has read the verdict
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from diagnose.nodecheck.meeting import HINT, Meeting
from telemetry.errors import UnreachableError


class Board:
    """Words by key, over one connection."""

    def __init__(self, store: Any, meeting: Meeting) -> None:
        self._store = store
        self._endpoint = meeting.endpoint

    def put(self, key: str, value: object) -> None:
        """Raises:
        UnreachableError: the store is gone.
        """
        with self._answering():
            self._store.set(key, json.dumps(value))

    def get(self, key: str, wait_s: float) -> Any:
        """The value, as soon as there is one; None when none came in time.

        Raises:
            UnreachableError: the store is gone.
        """
        if not self.wait([key], wait_s):
            return None
        with self._answering():
            return json.loads(self._store.get(key))

    def wait(self, keys: Sequence[str], wait_s: float) -> bool:
        """Whether all keys are there before the time is over.

        Raises:
            UnreachableError: the store is gone.
        """
        with self._answering():
            try:
                self._store.wait(list(keys), timedelta(seconds=max(wait_s, 0.01)))
            except dist.DistStoreError:
                return False
        return True

    def take_seat(self, index: int) -> bool:
        """False when somebody sits there.

        Raises:
            UnreachableError: the store is gone.
        """
        with self._answering():
            return int(self._store.add(f"seat/{index}", 1)) == 1

    def gone(self) -> UnreachableError:
        """What to raise when node 0 is silent."""
        return UnreachableError(f"node 0 at {self._endpoint} stopped answering", hint=f"is it alive? {HINT}")

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except dist.DistError as error:
            raise self.gone() from error
