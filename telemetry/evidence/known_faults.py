"""Log lines of known faults: a pattern for each, and its source."""

import re
from dataclasses import dataclass

_TORCH_NCCL = "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
_NCCL_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFault:
    """A pattern of a fault. The first match in the table gives the name of a line's fault."""

    name: str
    pattern: re.Pattern[str]
    source: str
    """A page, or the file of torch that prints it."""


def _fault(name: str, pattern: str, source: str) -> KnownFault:
    return KnownFault(name=name, pattern=re.compile(pattern), source=source)


KNOWN_FAULTS: tuple[KnownFault, ...] = (
    _fault("xid", r"NVRM: Xid\b|\bXid \(PCI", "https://docs.nvidia.com/deploy/xid-errors/index.html"),
    _fault(
        "cuda-out-of-memory",
        r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA error: out of memory",
        "c10/cuda/CUDACachingAllocator.cpp",
    ),
    _fault(
        "out-of-memory",
        r"[Oo]ut of memory: Kill|oom-kill|\bMemoryError\b|DefaultCPUAllocator: can't allocate memory",
        "https://docs.kernel.org/admin-guide/mm/concepts.html#oom-killer",
    ),
    _fault("watchdog-timeout", r"Watchdog caught collective operation timeout", _TORCH_NCCL),
    _fault("watchdog-timeout", r"[Hh]eartbeat monitor timed out|Timed out waiting \d+ms for", _TORCH_NCCL),
    _fault(
        "cuda-error",
        r"CUDA error: |CUDA driver error: |cudaError[A-Z]\w+|device-side assert triggered|Cuda failure",
        "c10/cuda/CUDAException.cpp",
    ),
    _fault(
        "cuda-error",
        r"CUBLAS_STATUS_(?!SUCCESS)\w+|CUDNN_STATUS_(?!SUCCESS)\w+",
        "aten/src/ATen/cuda/Exceptions.h",
    ),
    _fault(
        "collective-mismatch",
        r"op\.preamble\.length <= op\.nbytes",
        "third_party/gloo/gloo/transport/tcp/pair.cc",
    ),
    _fault("collective-mismatch", r"NCCL WARN .*collective mismatch error", "src/transport/net_ib.cc"),
    _fault(
        "collective-mismatch",
        r"Detected mismatch between collectives on ranks",
        "torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp",
    ),
    _fault(
        "lost-peer",
        r"DistStoreError|DistNetworkError|Socket Timeout|wait timeout after \d+ ?ms|NCCL communicator was aborted",
        "torch/csrc/distributed/c10d/TCPStore.cpp",
    ),
    _fault("nccl-error", r"NCCL error|nccl(?:System|Internal|Remote|UnhandledCuda)Error", _TORCH_NCCL),
    _fault("nccl-warning", r"\bNCCL WARN\b", _NCCL_DOCS),
    _fault(
        "gloo-connection",
        r"[Cc]onnection closed by peer|Connection reset by peer|Broken pipe|gloo.*[Tt]imed out",
        "third_party/gloo/gloo/transport/tcp/pair.cc",
    ),
    _fault(
        "lost-peer",
        r"\bDist(?:Backend)?Error\b|monitoredBarrier|gloo/transport/|Application timeout caused pair closure",
        "torch/csrc/distributed/c10d/exception.h",
    ),
    _fault(
        "segfault",
        r"[Ss]egmentation fault|SIGSEGV|Fatal Python error|Bus error|double free or corruption",
        "https://docs.python.org/3/library/faulthandler.html",
    ),
    _fault("terminated", r"terminate called after throwing|\bcore dumped\b|Aborted\b", "c10/util/Exception.cpp"),
    _fault(
        "disk-full",
        r"No space left on device|Disk quota exceeded",
        "https://man7.org/linux/man-pages/man3/errno.3.html",
    ),
    _fault(
        "python-traceback",
        r"Traceback \(most recent call last\)",
        "https://docs.python.org/3/library/traceback.html",
    ),
    _fault(
        "python-exception",
        r"^(?:\[rank\d+\]:\s?)?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)(?::|$)",
        "https://docs.python.org/3/library/exceptions.html",
    ),
)


def fault_of(line: str) -> str:
    """The name of the known fault that a line shows; empty if there is none."""
    return next((fault.name for fault in KNOWN_FAULTS if fault.pattern.search(line)), "")
