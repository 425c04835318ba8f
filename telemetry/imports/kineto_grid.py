"""The rank of each file, and the topology of the job: from the files, or from the user."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from telemetry.errors import UnreadableError, UsageError
from telemetry.group_names import axes_described, spans_whole_axes
from telemetry.imports.interface import DEGREES_HINT, ImportOptions
from telemetry.imports.kineto_file import Group, TraceFile
from telemetry.record.mesh_learning import MeshLearner
from telemetry.topology import AXES, MAX_RANKS, Axis, Topology

_SUFFIXES = (".json", ".json.gz")


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files in ``paths``. For a folder, the files in it that may be traces.

    Raises:
        UsageError: there is no file, or a file is given twice.
    """
    files = [file for path in paths for file in (_in_folder(path) if path.is_dir() else [path])]
    if len({file.resolve() for file in files}) < len(files):
        raise UsageError("a file is given twice", hint="give each file, or the folder, once")
    if not files:
        raise UsageError("no path is given", hint="give a .json or .json.gz for each rank, or their folder")
    return files


def _in_folder(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIXES) and path.is_file())
    if not found:
        raise UsageError(f"{folder} has no .json or .json.gz", hint="use the folder into which the profiler wrote")
    return found


def by_rank(traces: Sequence[TraceFile]) -> dict[int, TraceFile]:
    """Rank -> its file.

    Raises:
        UnreadableError: one of several files does not contain its rank, two files have the same rank, or the files
            belong to several jobs.
    """
    _refuse_other_jobs(traces)
    found: dict[int, TraceFile] = {}
    for trace in traces:
        alone = len(traces) == 1 and trace.world_size is None  # a number in its name need not be a rank
        rank = 0 if alone else trace.rank
        if rank is None and len(traces) > 1:
            raise UnreadableError(
                f"{trace.path} does not contain its rank", hint="put the rank into the file name: rank3.json"
            )
        rank = rank or 0
        if rank >= min(trace.world_size or MAX_RANKS, MAX_RANKS):
            raise UnreadableError(
                f"{trace.path} is of rank {rank}"[:300], hint="this is too large for the number of ranks"
            )
        if rank in found:
            raise UnreadableError(
                f"{found[rank].path} and {trace.path} are both of rank {rank}", hint="give one file for each rank"
            )
        found[rank] = trace
    return dict(sorted(found.items()))


def _refuse_other_jobs(traces: Sequence[TraceFile]) -> None:
    sizes = {trace.world_size: trace for trace in traces if trace.world_size is not None}
    if len(sizes) > 1:
        jobs = ", ".join(f"{trace.path.name} of {size} ranks" for size, trace in sorted(sizes.items())[:3])
        raise UnreadableError(f"the files are of several jobs: {jobs}", hint="import each job separately")
    if not set.intersection(*(set(trace.step_numbers.tolist()) for trace in traces)):
        raise UnreadableError("no step is in every file", hint="import files that were recorded at the same time")


def grid_of(traces: Mapping[int, TraceFile], options: ImportOptions) -> Topology:
    """The topology that the user states, otherwise the topology that the process groups show.

    Raises:
        UsageError: the degrees do not give the number of ranks, or groups do not match the rank order of a plain grid.
    """
    degrees_given = {axis: degree for axis in AXES if (degree := getattr(options, axis)) is not None}
    if options.mesh is not None:
        return _given_mesh(traces, degrees_given, options.mesh)
    world_size = _world_size(traces, degrees_given)
    if not degrees_given and (learned := _learned(traces, world_size)) is not None:
        return learned
    groups = {} if degrees_given else _degrees(traces)
    topology = _filled(degrees_given or groups, world_size)
    if max(traces) >= topology.world_size:
        raise UsageError(f"rank {max(traces)} in a grid of {topology.world_size}", hint=DEGREES_HINT)
    if groups:
        _check_order(traces, topology)
    return topology


def _world_size(traces: Mapping[int, TraceFile], degrees_given: Mapping[Axis, int]) -> int:
    sizes = [trace.world_size for trace in traces.values() if trace.world_size]
    if sizes:
        return sizes[0]
    return max(max(traces) + 1, _grid(degrees_given).world_size)


def _given_mesh(traces: Mapping[int, TraceFile], degrees_given: Mapping[Axis, int], mesh: Topology) -> Topology:
    if degrees_given:
        raise UsageError(
            "--mesh does not work with --dp, --pp or --tp", hint="use only --mesh: it gives every axis with its degree"
        )
    sizes = {trace.world_size for trace in traces.values() if trace.world_size} or {mesh.world_size}
    if sizes != {mesh.world_size} or max(traces) >= mesh.world_size:
        raise UsageError(f"{mesh} does not give the {max(*sizes, max(traces) + 1)} ranks of the job", hint=DEGREES_HINT)
    return mesh


def _learned(traces: Mapping[int, TraceFile], world_size: int) -> Topology | None:
    return learned_mesh({rank: trace.groups.values() for rank, trace in traces.items()}, world_size)


def learned_mesh(groups: Mapping[int, Iterable[Group]], world_size: int) -> Topology | None:
    """The mesh that the groups of each rank show. None if they show no mesh, or different meshes."""
    found: set[Topology] = set()
    for rank, groups_of_rank in groups.items():
        learner = MeshLearner(world_size)
        for group in groups_of_rank:
            if rank in group.ranks:
                learner.add(group.desc, group.ranks)
        found |= {learner.topology} if learner.topology is not None else set()
    return found.pop() if len(found) == 1 else None


def _degrees(traces: Mapping[int, TraceFile]) -> dict[Axis, int]:
    """Degrees of tp and pp: the sizes of groups whose description names the axis. The degree of dp follows from these:
    replicas may form several groups, one within another."""
    found: dict[Axis, int] = {}
    for trace in traces.values():
        for group in trace.groups.values():
            axis = _axis(group.desc)
            if axis is not None and group.ranks:
                found[axis] = len(group.ranks)
    return found


def _axis(description: str) -> Axis | None:
    """The axis tp or pp, if a group contains all ranks along it. Otherwise None."""
    named = axes_described(description) if spans_whole_axes(description) else ()
    if named == ("tp",):
        return "tp"
    return "pp" if named == ("pp",) else None


def _filled(degrees_given: Mapping[Axis, int], world_size: int) -> Topology:
    """The grid of these degrees. Without dp, or with one degree missing, that degree is set to fit ``world_size``."""
    degrees = dict(degrees_given)
    missing = [axis for axis in AXES if axis not in degrees]
    made = _grid(degrees).world_size
    if missing and (missing[0] == "dp" or len(missing) == 1) and world_size % made == 0:
        degrees[missing[0]] = world_size // made
    topology = _grid(degrees)
    if topology.world_size != world_size:
        grid = " x ".join(f"{axis} {degree}" for axis, degree in degrees.items())
        raise UsageError(f"{grid} does not give the {world_size} ranks of the job", hint=DEGREES_HINT)
    return topology


def _grid(degrees: Mapping[Axis, int]) -> Topology:
    return Topology(dp=degrees.get("dp", 1), pp=degrees.get("pp", 1), tp=degrees.get("tp", 1))


def _check_order(traces: Mapping[int, TraceFile], topology: Topology) -> None:
    for rank, trace in traces.items():
        for group in trace.groups.values():
            axis = _axis(group.desc)
            if (
                axis is not None
                and rank in group.ranks
                and sorted(group.ranks) != sorted(topology.group(rank, along=axis))
            ):
                raise UsageError(
                    f"the {axis} group {list(group.ranks)} of {trace.path.name} does not match the "
                    f"assumed rank order: tp fastest, then pp, then dp",
                    hint=f"set the mesh: --mesh pp=2,dp=4,tp=8. If all ranks are replicas: --dp {topology.world_size}",
                )
