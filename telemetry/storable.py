"""Names that come from outside, so that a table can take them."""

MAX_HOST_LENGTH = 256
"""Characters of a host's name."""


def storable(name: str) -> str:
    """``name`` in letters that can be stored: environments and kernels hold any bytes, of which some are no text."""
    return name.encode(errors="replace").decode()
