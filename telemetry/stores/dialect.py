"""Adapts the schema to old servers. It is written for today's engine.

modern (22 and up)                          old (Debian's 18.16)
LowCardinality(String)                      String
column codecs: CODEC(Delta, ZSTD(1))        left out: everything is LZ4
ADD COLUMN IF NOT EXISTS                    ADD COLUMN: migrations check beforehand
-- modern: this statement                   statement left out (views that need Map, DateTime64, sipHash128)
"""

import re

Version = tuple[int, int]

FIRST_MODERN: Version = (22, 0)
MODERN_MARK = "-- modern"

_CODEC = re.compile(r"\s+CODEC\((?:[^()]|\([^()]*\))*\)")
_LOW_CARDINALITY = re.compile(r"LowCardinality\((\w+)\)")


def parse_version(text: str) -> Version:
    """``26.9.2.1`` -> ``(26, 9)``."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def is_modern(version: Version) -> bool:
    return version >= FIRST_MODERN


def statements(script: str, version: Version) -> list[str]:
    """The statements of a script, each in the form that a server of ``version`` understands."""
    parts = [part.strip() for part in script.split(";\n")]
    if is_modern(version):
        return [part for part in parts if part]
    return [_reduced(part) for part in parts if part and not part.startswith(MODERN_MARK)]


def _reduced(statement: str) -> str:
    reduced = statement.replace("ADD COLUMN IF NOT EXISTS", "ADD COLUMN")
    return _LOW_CARDINALITY.sub(r"\1", _CODEC.sub("", reduced))
