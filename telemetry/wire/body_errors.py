"""Errors of a JSON body in plain words."""

from pydantic import ValidationError

from telemetry.plain_errors import in_plain_words


def first_problem(error: ValidationError | RecursionError) -> str:
    """The first field that is wrong, and why: ``who: must be text``."""
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'body'}: {in_plain_words(first['msg'])}"
