"""Which process is traced, and under which names."""

import pytest

from telemetry.attach.deciding import Names, is_no_rank, is_single_rank, names_of, wants_attachment
from telemetry.errors import UsageError

URL = "http://collector:8719"


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"RANKSCOPE": "1"}, True),
        ({"RANKSCOPE": "yes"}, True),
        ({"RANKSCOPE_COLLECTOR": URL}, True),
        ({"RANKSCOPE": "", "RANKSCOPE_COLLECTOR": URL}, True),
        ({"RANKSCOPE": "0", "RANKSCOPE_COLLECTOR": URL}, False),
        ({"RANKSCOPE": "1", "RANKSCOPE_DISABLED": "1"}, False),
        ({"RANKSCOPE_DISABLED": "0", "RANKSCOPE_COLLECTOR": "https://[::1]"}, True),
    ],
)
def test_attachment_is_decided_by_environment_variables(environment: dict[str, str], wanted: bool) -> None:
    assert wants_attachment(environment) is wanted


@pytest.mark.parametrize(
    "environment",
    [
        {"RANKSCOPE": "banana"},
        *(
            {"RANKSCOPE_COLLECTOR": url}
            for url in ("collector:8719", "http://", "http://c:0", "http://c:x", "http://[")
        ),
    ],
)
def test_invalid_environment_value_raises_an_error_with_a_hint(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError) as error:
        wants_attachment(environment)
    assert error.value.hint


@pytest.mark.parametrize(
    ("program", "no_rank"),
    [
        ("/venv/bin/torchrun", True),
        ("/venv/lib/python3.11/site-packages/torch/distributed/run.py", True),
        ("/venv/lib/python3.11/site-packages/torch/_inductor/compile_worker/__main__.py", True),
        ("train.py", False),
        ("/home/me/my_torchrun.py", False),
        ("-c", False),
        ("", False),
    ],
)
def test_launchers_and_helper_programs_are_not_ranks(program: str, no_rank: bool) -> None:
    assert is_no_rank([program, "train.py"]) is no_rank
    assert not is_no_rank([])


@pytest.mark.parametrize(
    ("environment", "single"),
    [
        ({"WORLD_SIZE": "1", "RANK": "0"}, True),
        ({"WORLD_SIZE": "1"}, True),
        ({"WORLD_SIZE": "8", "RANK": "0", "RANKSCOPE": "1"}, False),
        ({"RANK": "3", "RANKSCOPE": "1"}, False),
        ({"RANKSCOPE": "1"}, True),
        ({"RANKSCOPE_COLLECTOR": URL}, False),
    ],
)
def test_process_without_a_process_group_is_a_rank_if_it_is_the_only_process(
    environment: dict[str, str], single: bool
) -> None:
    assert is_single_rank(environment) is single


def test_run_name_and_local_rank_are_read_from_the_launcher() -> None:
    assert names_of({}) == Names(run=None, local_rank=None)
    assert names_of({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2", "SLURM_LOCALID": "3"}) == Names(
        run="slurm-7.2", local_rank=3
    )
    assert names_of({"SLURM_JOB_ID": "7", "RANKSCOPE_RUN": "mine", "LOCAL_RANK": "1", "SLURM_LOCALID": "0"}) == Names(
        run=None, local_rank=1
    )
    with pytest.raises(UsageError, match="LOCAL_RANK is 'x'"):
        names_of({"LOCAL_RANK": "x"})
