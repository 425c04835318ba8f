"""Labels of a run."""

import pytest

from telemetry.errors import UsageError
from telemetry.labels import MAX_VALUE_LENGTH, label_meta, labels_in
from tests.each_case import each_case


def test_labels_are_read_back_from_the_meta_of_a_rank() -> None:
    meta = {"recipe": "tiny_cpu", **label_meta(["team=search", "note=a=b, größer", "empty="])}
    assert labels_in(meta) == {"team": "search", "note": "a=b, größer", "empty": ""}


@each_case(
    "wrong", ["team", "=x", "Team=x", "a b=x", "team=\x1b[2J", "team=a\nb", "team=" + "x" * (MAX_VALUE_LENGTH + 1)]
)
def test_invalid_label_is_refused_with_the_expected_form(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"is not a label[\s\S]*use NAME=VALUE"):
        label_meta([wrong])


def test_label_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="label team is given twice"):
        label_meta(["team=a", "team=b"])
