"""What users read: README, CONTRIBUTING, CHANGELOG and the pages of ``docs/``."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def pages() -> dict[str, str]:
    """Path from the repository root -> its text."""
    files = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(files)}


def prose(text: str) -> str:
    """The text without blocks of code."""
    return _FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """Names of the headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)) for heading in headings]
    return {heading.strip().lower().replace(" ", "-") for heading in plain}
