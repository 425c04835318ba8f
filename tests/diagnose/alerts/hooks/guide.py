"""The code blocks of the guide on alert hooks."""

import re
from pathlib import Path

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "alert-hooks.md"


def blocks(language: str) -> list[str]:
    """The blocks of code in ``language``, at least one."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found
