"""The memory that a keeper may fill, on recorded cgroups of both versions."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

import psutil
import pytest

from tests.each_case import each_case
from trainer.replicas.memory_limits import Memory, usable_memory

MIB = 1 << 20
NO_LIMIT_V1 = "9223372036854771712"
V2, V1 = "0::/kubepods/pod7/main\n", "12:cpu,cpuacct:/\n9:memory:/docker/4f1c\n0::/unified\n"
Files = Mapping[str, str]


def v2(limit: str, used: int, cached: int = 0, high: str = "max") -> Files:
    stat = f"anon 1\ninactive_file {cached}\n"
    return {"memory.max": limit, "memory.high": high, "memory.current": str(used), "memory.stat": stat}


def v1(limit: str, used: int, cached: int = 0) -> Files:
    stat = f"inactive_file 7\ntotal_inactive_file {cached}\n"
    return {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": str(used), "memory.stat": stat}


def memory(tmp_path: Path, own: str, **groups: Files) -> Memory:
    """``groups``: files by the name of a folder with ``_`` for ``/``; ``root`` is the mount."""
    own_path = tmp_path / "own"
    own_path.write_text(own)
    mount = tmp_path / "cgroup"
    for name, files in groups.items():
        folder = mount / name.replace("_", "/").removeprefix("root").removeprefix("/")
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(f"{text}\n")
    return usable_memory(mount, own_path)


def memory_of(limit: int, used: int) -> Memory:
    return Memory(total_bytes=limit, free_bytes=limit - used)


def test_cgroup_v2_limit_is_used_and_cached_files_count_as_free(tmp_path: Path) -> None:
    found = memory(tmp_path, V2, kubepods_pod7_main=v2(str(8 * MIB), 5 * MIB, cached=MIB))
    assert found == memory_of(8 * MIB, 4 * MIB)


def test_cgroup_v1_limit_is_used_and_cached_files_count_as_free(tmp_path: Path) -> None:
    assert memory(tmp_path, V1, memory_docker_4f1c=v1(str(8 * MIB), 5 * MIB, cached=MIB)) == memory_of(8 * MIB, 4 * MIB)


def test_lower_limit_of_a_parent_cgroup_is_used(tmp_path: Path) -> None:
    found = memory(
        tmp_path,
        V2,
        kubepods_pod7_main=v2(str(16 * MIB), MIB),
        kubepods_pod7=v2("max", 0),
        kubepods=v2(str(8 * MIB), 0),
    )
    assert found == Memory(total_bytes=8 * MIB, free_bytes=8 * MIB)


def test_memory_high_limit_is_used(tmp_path: Path) -> None:
    assert memory(tmp_path, V2, kubepods=v2(str(8 * MIB), MIB, high=str(4 * MIB))) == memory_of(4 * MIB, MIB)


@pytest.mark.parametrize(
    ("own", "groups"),
    [(V2, {"root": v2(str(8 * MIB), MIB)}), (V1, {"memory": v1(str(8 * MIB), MIB)})],
    ids=["version 2", "version 1"],
)
def test_limit_at_the_cgroup_mount_is_used_inside_a_container(
    tmp_path: Path, own: str, groups: Mapping[str, Files]
) -> None:
    assert memory(tmp_path, own, **groups) == memory_of(8 * MIB, MIB)


@each_case(
    ("own", "groups"),
    [
        ("", {}),
        ("garbage\n", {}),
        (V2, {"kubepods": v2("max", MIB)}),
        (V2, {"kubepods": {"memory.max": str(MIB)}}),
        (V1, {"memory_docker_4f1c": v1(NO_LIMIT_V1, MIB)}),
    ],
)
def test_memory_of_the_node_is_used_when_no_cgroup_limit_is_known(
    tmp_path: Path, own: str, groups: Mapping[str, Files]
) -> None:
    assert memory(Path(mkdtemp(dir=tmp_path)), own, **groups).total_bytes == psutil.virtual_memory().total
