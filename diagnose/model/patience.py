"""How long a job waits for its network before it fails: the budget that a flap is held against.

    NCCL over InfiniBand/RoCE   a lost packet is tried RETRY_CNT times, each 4.096 us x 2^NCCL_IB_TIMEOUT
    everything                  the time after which the process group gives a collective up

The smaller one ends the job. NCCL's own defaults (20 and 7) hold where the job set nothing: about 30 s, and 7.5 s with
the 18 of older versions. (InfiniBand's local ACK timeout; MegaScale, section 6.3: set it larger than a flap.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

IB_TIMEOUT, IB_RETRIES = 20, 7
IB_UNIT_S = 4.096e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds a collective may stand still, and what says so; 0 where nothing is known."""

    seconds: float = 0.0
    words: str = ""

    def survives(self, outage_s: float) -> bool | None:
        """Whether a job lives through an outage of that length; None where nothing is known."""
        return None if not self.seconds else outage_s < self.seconds


def patience_of(words: Sequence[Mapping[str, str]]) -> Patience:
    """The least patient rank's, from what ranks said about themselves (``RunView.words``)."""
    found = [one for told in words for one in _of_rank(told)]
    return min(found, key=lambda one: one.seconds, default=Patience())


def _of_rank(told: Mapping[str, str]) -> list[Patience]:
    found: list[Patience] = []
    timeout_s = _number(told.get("collective_timeout_s", ""))
    if timeout_s:
        backend = told.get("backend", "")
        found.append(Patience(seconds=timeout_s, words=f"{backend or 'collective'} timeout {timeout_s:g} s"))
    if told.get("backend") == "nccl" and told.get("NCCL_IB_DISABLE", "0") != "1":
        exponent = _number(told.get("NCCL_IB_TIMEOUT", "")) or IB_TIMEOUT
        retries = _number(told.get("NCCL_IB_RETRY_CNT", "")) or IB_RETRIES
        seconds = IB_UNIT_S * 2 ** min(exponent, 31) * retries
        words = f"NCCL_IB_TIMEOUT={exponent:g}, NCCL_IB_RETRY_CNT={retries:g}"
        found.append(Patience(seconds=seconds, words=words))
    return found


def _number(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
