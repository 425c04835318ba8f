"""What a rank said about itself as it began: ``meta`` of the table ``ranks``."""

import json
from collections.abc import Mapping
from contextlib import suppress


def told_by(meta: str) -> Mapping[str, str]:
    """The words of one rank, from a JSON object; none where it is something else."""
    with suppress(ValueError, RecursionError):
        told = json.loads(meta)
        return {str(key): str(value) for key, value in told.items()} if isinstance(told, dict) else {}
    return {}
