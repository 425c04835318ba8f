import pytest

from telemetry.errors import UsageError
from telemetry.topology import Place, Topology

GRID = Topology(dp=2, pp=3, tp=4)


def test_a_place_and_its_rank_are_inverse() -> None:
    assert [GRID.rank(GRID.place(rank)) for rank in range(24)] == list(range(24))
    assert GRID.place(0) == Place(0, 0, 0)
    assert GRID.place(17) == Place(1, 1, 1)


def test_tp_varies_fastest_and_dp_slowest() -> None:
    assert GRID.group(0, along="tp") == (0, 1, 2, 3)
    assert GRID.group(0, along="pp") == (0, 4, 8)
    assert GRID.group(0, along="dp") == (0, 12)


@pytest.mark.parametrize("axis", ["dp", "pp", "tp"])
def test_the_groups_of_an_axis_hold_every_rank_once(axis: str) -> None:
    members = [rank for group in GRID.groups(along=axis) for rank in group]  # type: ignore[arg-type]
    assert sorted(members) == list(range(24))


@pytest.mark.parametrize("degrees", [{"dp": 0}, {"tp": -1}, {"dp": 2**20, "tp": 2}])
def test_an_impossible_grid_is_refused_with_a_hint(degrees: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="hint: "):
        Topology(**degrees)
