"""Reads the table of a hook into a frozen dataclass, and checks it.

    [hooks.pager]                             @dataclass(frozen=True, slots=True, kw_only=True)
    type = "pagerduty"                        class PagerDutyKeys:
    routing_key_env = "PAGERDUTY_KEY"   -->       routing_key: SecretStr
    timeout_s = 5                                 timeout_s: Seconds = 10.0

A configuration contains no secrets. ``NAME_env`` names the environment variable with the secret, ``NAME_file`` the
file. The secret is read once.
"""

import os
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import pydantic
from pydantic import SecretStr, TypeAdapter, ValidationError

from telemetry.errors import UsageError
from telemetry.files.access import read_input
from telemetry.plain_errors import in_plain_words

Seconds = Annotated[float, pydantic.Field(gt=0, le=600, allow_inf_nan=False)]
"""A timeout."""
ResendSeconds = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Batch = Annotated[int, pydantic.Field(ge=1, le=1000)]
Text = Annotated[str, pydantic.Field(min_length=1)]
MAX_SECRET_BYTES = 2**16
"""Largest size of a file with a secret."""
MAY_BE_PLAIN = {"may_be_plain": True}
"""Metadata of a field that is not always a secret, such as an address. The plain key ``NAME`` is also accepted."""

Keys = TypeVar("Keys")
_SOURCES = ("_env", "_file")


def read_keys(keys: type[Keys], hook: str, table: Mapping[str, object]) -> Keys:
    """The dataclass ``keys`` with the values in the ``table`` of the hook named ``hook``.

    Fields of type ``SecretStr`` are secrets. Types are not converted, except that lists become tuples.

    Raises:
        UsageError: a key is unknown, missing, of a wrong type or out of range, or a secret is missing. The message
            contains no value.
    """
    types = get_type_hints(keys, include_extras=True)
    wanted = {field.name: field for field in fields(keys)}  # type: ignore[arg-type]
    _refuse_unknown(hook, table, wanted, types)
    values: dict[str, Any] = {}
    for name, field in wanted.items():
        value = _secret(hook, table, name) if _is_secret(types[name]) else table.get(name)
        if value is not None:
            values[name] = _checked(hook, name, types[name], value)
        elif field.default is MISSING and field.default_factory is MISSING:
            spelled = " or ".join(_spelled(field, types[name]))
            raise UsageError(f"hook {hook} needs {spelled}", hint=f"add it to [hooks.{hook}]")
    return keys(**values)


def _refuse_unknown(
    hook: str, table: Mapping[str, object], wanted: Mapping[str, "Field[Any]"], types: Mapping[str, Any]
) -> None:
    known = ["type", *(key for name, field in wanted.items() for key in _spelled(field, types[name]))]
    for key in table:
        if key in known:
            continue
        if key in wanted:
            raise UsageError(
                f"hook {hook}: {key} is a secret and must not be in the configuration",
                hint=f'write {key}_env = "NAME" (a variable of the environment) or {key}_file = "PATH"',
            )
        close = get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
        raise UsageError(f"hook {hook}: unknown key {key!r}", hint=hint)


def _spelled(field: "Field[Any]", of_type: object) -> list[str]:
    """The keys that set a field."""
    if not _is_secret(of_type):
        return [field.name]
    plain = [field.name] if "may_be_plain" in field.metadata else []
    return plain + [field.name + source for source in _SOURCES]


def _is_secret(of_type: object) -> bool:
    return of_type in (SecretStr, SecretStr | None)


def _secret(hook: str, table: Mapping[str, object], name: str) -> SecretStr | None:
    given = [key for key in (name, *(name + source for source in _SOURCES)) if key in table]
    if not given:
        return None
    if len(given) > 1:
        raise UsageError(f"hook {hook}: {' and '.join(given)} set the same value", hint="remove all but one")
    key = given[0]
    value = _checked(hook, key, Text, table[key])
    secret = (_plain(hook, key, value) if key == name else _read_secret(hook, key, value)).strip()
    if not (secret and secret.isprintable()):
        raise UsageError(
            f"hook {hook}: the value from {key} is empty or has more than one line", hint="set it to one line"
        )
    return SecretStr(secret)


def _plain(hook: str, key: str, address: str) -> str:
    if "@" in address.partition("://")[2].partition("/")[0]:
        raise UsageError(f"hook {hook}: {key} contains a user and a password", hint=f"use {key}_env or {key}_file")
    return address


def _read_secret(hook: str, key: str, place: str) -> str:
    if key.endswith("_env"):
        if place not in os.environ:
            raise UsageError(f"hook {hook}: the variable that {key} names is not set", hint="export it")
        return os.environ[place]
    try:
        return read_input(Path(place), max_bytes=MAX_SECRET_BYTES).decode()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(
            f"hook {hook}: the file that {key} names: {why}", hint="write only the secret, in one line"
        ) from None


def _checked(hook: str, key: str, of_type: Any, value: object) -> Any:
    try:
        value = tuple(value) if isinstance(value, list) else value
        _refuse_nul(hook, key, value)
        return TypeAdapter(of_type).validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise UsageError(
            f"hook {hook}: {key}: {in_plain_words(first['msg'])}", hint="see docs/guides/alert-hooks.md"
        ) from None


def _refuse_nul(hook: str, key: str, value: object) -> None:
    """Refuse NUL characters: the system allows none in paths, arguments and variables."""
    texts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(text, str) and "\0" in text for text in texts):
        raise UsageError(f"hook {hook}: {key} contains a NUL character", hint="remove it")
