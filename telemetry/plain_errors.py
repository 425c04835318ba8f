"""Messages of libraries in plain words. Typer checks the options of commands with pydantic.

Input should be a valid integer, unable to parse string as an integer   -->   must be a whole number
"""

import json
import re

from telemetry.files.plain_pickle import MalformedError

_MESSAGE = re.compile(r"Input should (?P<what>be (?:(?!, (?:unable|got) ).)+)(?:, (?:unable|got) .*)?", re.DOTALL)
_WORDS = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid tuple": "a list",
    "a valid list": "a list",
    "a valid array": "a list",
    "a valid dictionary": "a table",
    "a valid object": "a table",
    "an object": "a table",
}


def in_plain_words(message: str) -> str:
    """``message`` without pydantic's terms. Other messages do not change."""
    text = message.removeprefix("Value error, ")
    if text == "Field required":
        return "is missing"
    if text.startswith("Invalid JSON:"):
        return "is not JSON"
    if text.startswith("Unable to parse input string as an integer"):
        return "must be a whole number"
    found = _MESSAGE.fullmatch(text)
    if found is None:
        return text
    what = found["what"].removeprefix("be ")
    return f"must be {_WORDS.get(what, what)}"


def why_malformed(error: Exception) -> str:
    """Why the content of a file cannot be used, from the exception of the code that reads it."""
    match error:
        case MalformedError():
            return str(error)
        case json.JSONDecodeError():
            return f"it is not valid JSON at line {error.lineno}, column {error.colno}"
        case KeyError():
            return f"it has no field {error.args[0]!r}"
        case MemoryError() | RecursionError():
            return "it is too deep or too large"
        case _:
            return "a value in it does not have the expected type"


def without_errno(error: Exception) -> str:
    """``[Errno 111] Connection refused`` -> ``Connection refused``."""
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error))
