"""What sysfs says of the carrier of one interface.

carrier              1, 0; EINVAL: its owner took it down
carrier_down_count   carrier_up_count     since 4.16
carrier_changes                           both together, before that
flags, operstate                          where there is no ``carrier`` to read
"""

import errno
from contextlib import suppress
from pathlib import Path

from telemetry.agent.samplers.kept_files import Descriptors, KeptFile
from telemetry.agent.samplers.link_ledger import LinkState

Numbers = tuple[int | None, int | None, int | None]
"""Times lost, times gained, both together; None where not told."""
_IFF_UP = 0x1
_OPERSTATES = {"up": LinkState.UP, "down": LinkState.DOWN, "lowerlayerdown": LinkState.DOWN}


class CarrierFiles:
    """Files of one interface, each as of the moment at which it is asked."""

    def __init__(self, interface: Path, descriptors: Descriptors) -> None:
        def file(name: str) -> KeptFile:
            return KeptFile(interface / name, descriptors)

        self._carrier, self._flags, self._operstate = file("carrier"), file("flags"), file("operstate")
        self._downs, self._ups = file("carrier_down_count"), file("carrier_up_count")
        self._changes = file("carrier_changes")
        self._files = (self._carrier, self._flags, self._operstate, self._downs, self._ups, self._changes)

    def numbers(self) -> Numbers:
        """Never raises: what cannot be read is None."""
        downs, ups = self._downs.number(), self._ups.number()
        if downs is not None and ups is not None:
            return downs, ups, None
        return None, None, self._changes.number()

    def state(self) -> LinkState | None:
        """None where nothing tells.

        Raises:
            OSError: ENODEV, the interface is gone.
        """
        try:
            held = self._carrier.read().strip()
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise
            return LinkState.TAKEN_DOWN if error.errno == errno.EINVAL else self._state_otherwise()
        if held in (b"0", b"1"):
            return LinkState.UP if held == b"1" else LinkState.DOWN
        return self._state_otherwise()

    def operstate(self) -> str:
        """Empty where it cannot be read."""
        return self._operstate.word()

    def try_again(self) -> None:
        """Ask files that were retired once more."""
        for file in self._files:
            file.try_again()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _state_otherwise(self) -> LinkState | None:
        with suppress(ValueError):
            if not int(self._flags.word(), 16) & _IFF_UP:
                return LinkState.TAKEN_DOWN
        return _OPERSTATES.get(self.operstate())
