"""The roles of a simulated reinforcement-learning job: their names and numbers of ranks.

rollout=8,reward=2,reference=2,actor=4        ranks 0 to 7, 8 and 9, 10 and 11, 12 to 15
"""

import re
from dataclasses import dataclass

from telemetry.errors import UsageError

KNOWN = ("rollout", "reward", "reference", "actor")
_PART = re.compile(r"([a-z]+)=([0-9]{1,6})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role and its number of ranks."""

    name: str
    num_ranks: int


def parse_roles(text: str) -> tuple[Role, ...]:
    """The roles in ``text``, in rank order. An empty text gives no roles.

    Raises:
        UsageError: the text has another form, rollout or actor is missing, a role is unknown or named twice, or a role
            has 0 ranks.
    """
    if not text.strip():
        return ()
    parts = [_PART.fullmatch(part.strip()) for part in text.split(",")]
    roles = tuple(Role(name=part[1], num_ranks=int(part[2])) for part in parts if part is not None)
    names = [role.name for role in roles]
    is_sound = len(roles) == len(parts) and all(role.num_ranks for role in roles) and len(set(names)) == len(names)
    if not is_sound or not {"rollout", "actor"} <= set(names) <= set(KNOWN):
        raise UsageError(
            f"{text[:200]!r} is not a list of roles",
            hint="give rollout and actor with their numbers of ranks: rollout=8,actor=4",
        )
    return roles
