"""Converts an exception to the error that the user of a command reads.

exception                                    error
RankscopeError                               itself
OSError about a path, or of a full disk      UsageError: the path, and the system's message
ModuleNotFoundError of an optional package   UsageError: the extra of this package that installs it
anything else                                None: a defect. The command prints the traceback.
"""

import errno
import os
import re
import sysconfig
from importlib import metadata
from pathlib import Path

from telemetry.errors import RankscopeError, UsageError

CRASH_STATUS = 70
"""Exit status after a defect of rankscope (EX_SOFTWARE of sysexits.h), distinct from the documented ones."""

_PACKAGES = ("rankscope", "telemetry", "trainer", "diagnose", "ui")
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HINTS: dict[int | None, str] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "use a path that this user can access"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "the path is a file, a folder is needed: use another path"),
    errno.EINVAL: "check the file: remove it, or use another path",
    errno.EISDIR: "the path is a folder, a file is needed: use another path",
    errno.ENOENT: "use a path that exists or can be created",
}
_DISTRIBUTION_OF = {
    "anyio": "fastapi",
    "starlette": "fastapi",
    "h11": "uvicorn",
    "requests": "opentelemetry-exporter-otlp-proto-http",
    "yaml": "pyyaml",
    "pynvml": "nvidia-ml-py",
    "google": "googleapis-common-protos",
    "opentelemetry": "opentelemetry-sdk",
    "mlflow": "mlflow-skinny",
}
"""Modules whose requirement has another name."""


def user_error(error: BaseException, *, extra: str = "all") -> RankscopeError | None:
    """The message that replaces a traceback; None for a defect of rankscope.

    Args:
        extra: the extra that the command belongs to. The hint names it if it installs the missing package.
    """
    if isinstance(error, RankscopeError):
        return error
    if isinstance(error, ModuleNotFoundError):
        return _missing_package(error, extra)
    if isinstance(error, OSError):
        return _failed_call(error)
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # Path.resolve before Python 3.13
        return UsageError(str(error), hint="use a path that leads to a file or a folder")
    return None


def is_disk_full(error: BaseException) -> bool:
    """Whether ``error`` is from a full disk, or was raised because of one: libraries replace the system's error."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in _DISK_IS_FULL:
            return True
        found = found.__cause__ or found.__context__
    return False


def _failed_call(error: OSError) -> RankscopeError | None:
    """An error of the system that concerns a path outside of our code, or a full disk."""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | Path) else ""
    if error.errno in _DISK_IS_FULL:
        return UsageError(
            f"{path or 'cannot write'}: {error.strerror}", hint="free some space there, or write to another disk"
        )
    if not path or _is_code(Path(path)):
        return None
    return UsageError(f"{path}: {error.strerror}", hint=_HINTS.get(error.errno, "check the path"))


def _is_code(path: Path) -> bool:
    """Whether ``path`` belongs to this package or to the Python that runs it."""
    home = Path(__file__).resolve().parents[1]
    libraries = (Path(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(path.is_relative_to(root) for root in (*(home / name for name in _PACKAGES), *libraries))


def _missing_package(error: ModuleNotFoundError, extra: str) -> RankscopeError | None:
    module = (error.name or "").partition(".")[0]
    distribution = _DISTRIBUTION_OF.get(module, module.replace("_", "-"))
    extras = _extras_with(distribution)
    if not module or module in _PACKAGES or not extras:
        return None
    chosen = extra if extra in extras or extra == "all" else extras[0]
    return UsageError(f"this command needs the package {distribution}", hint=f"pip install 'rankscope[{chosen}]'")


def _extras_with(distribution: str) -> list[str]:
    """The extras that require ``distribution``, by the metadata of the installed package."""
    try:
        requirements = metadata.requires("rankscope") or []
    except metadata.PackageNotFoundError:
        return []
    found = (line.partition("; extra == ")[::2] for line in requirements)
    return [extra.strip("'\"") for what, extra in found if extra and _name_of(what) == distribution]


def _name_of(requirement: str) -> str:
    """``clickhouse-driver`` of ``clickhouse-driver[lz4]>=0.2.11``."""
    return re.split(r"[\[<>=!~ ;]", requirement, maxsplit=1)[0].lower().replace("_", "-")
