"""Commands and statements of a guide, so that tests run exactly what users read."""

import re

from tests.docs.pages import DOCS


def blocks(page: str, heading: str, language: str) -> list[str]:
    """The blocks of code below a heading of ``docs/guides/PAGE``, up to the next heading."""
    text = (DOCS / "guides" / page).read_text()
    section = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"{page} has no heading {heading!r}"
    return re.findall(rf"^```{language}\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)


def sql_of(page: str, heading: str) -> list[str]:
    """The SQL statements below a heading, without the semicolons."""
    text = "".join(blocks(page, heading, "sql"))
    return [statement.strip() for statement in text.split(";\n") if statement.strip()]
