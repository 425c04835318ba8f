"""OpenTelemetry spans of ranks in files: JSON lines of OTLP requests, as the file exporter of the OpenTelemetry
Collector writes them.

    {"resourceSpans": [{"resource": {"attributes": [...]}, "scopeSpans": [{"spans": [...]}]}]}       one in each line

``telemetry/collector/otlp/rank_spans.py`` lists the attributes that identify the rank of a span. A collector converts
the same spans when they arrive. Logs and metrics in the file are left out.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from telemetry.collector.otlp.message import JSON_TYPE, Encoding, TooBigError, decode
from telemetry.collector.otlp.rank_spans import RankSpan, Source, StepFinder, in_order, rank_spans_of
from telemetry.errors import UnreadableError, UsageError
from telemetry.imports.interface import ImportedRun, ImportOptions
from telemetry.imports.rank_operations import TOWARDS
from telemetry.imports.span_rows import Rows, name_of, refuse_meta
from telemetry.imports.stated_grid import neighbour, topology_of_options
from telemetry.imports.text_input import MAX_BYTES, find_inputs, lines_of

FORMAT = "otlp"
HINT = "give the files of the file exporter of the OpenTelemetry Collector, with `format: json`"
RANK_HINT = "a span needs the attributes rank and world_size, and a step: see `docs/guides/opentelemetry.md`"


def import_otlp(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    """The run in files of requests: see :class:`telemetry.imports.interface.Importer`."""
    refuse_meta(options, FORMAT)
    files = find_inputs(
        paths,
        (".json", ".jsonl", ".json.gz", ".jsonl.gz"),
        "the files of the file exporter of the OpenTelemetry Collector",
    )
    by_rank: dict[tuple[str, int, int], list[RankSpan]] = defaultdict(list)
    for span in (span for path in files for span in _spans(path)):
        by_rank[span.source.key].append(span)
    found = [span for spans in by_rank.values() for span in StepFinder().take(in_order(_once(spans)))]
    if not found:
        raise UnreadableError(f"{files[0]} has no span of a rank in a step", hint=RANK_HINT)
    sources = _sources(found)
    stated = max(source.topology.world_size for source in sources.values())
    topology = topology_of_options(options, stated) or next(iter(sources.values())).topology
    rows = Rows()
    for span in found:
        rank = span.source.rank
        rows.append(
            rank=rank,
            stage=span.stage,
            step=span.step or 0,
            start_ns=span.start_ns,
            duration_ns=span.duration_ns,
            microbatch=span.microbatch,
            peer=neighbour(topology, rank, TOWARDS[span.stage]) if span.stage in TOWARDS else -1,
        )
    return rows.run(
        options,
        next(iter(sources.values())).run_id or name_of(files),
        topology=topology,
        hosts={rank: source.host for rank, source in sources.items()},
        meta={"imported_from": FORMAT, "files": str(len(files))},
    )


def _spans(path: Path) -> Iterator[RankSpan]:
    encoding = Encoding(content_type=JSON_TYPE)
    lines = lines_of(path, HINT)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            request = decode(line.encode(), encoding, ExportTraceServiceRequest, limit_bytes=MAX_BYTES)
        except (UsageError, TooBigError) as error:
            if number == len(lines) > 1:
                return  # its writer was killed
            raise UnreadableError(
                f"{path}, line {number}: {str(error).partition(chr(10))[0][:200]}", hint=HINT
            ) from error
        yield from rank_spans_of(request)


def _once(spans: Sequence[RankSpan]) -> list[RankSpan]:
    """``spans`` without duplicates: a span may have been sent twice."""
    return list({span.span_id: span for span in spans}.values())


def _sources(spans: Sequence[RankSpan]) -> dict[int, Source]:
    """Rank -> the ``Source`` of its spans: run, attempt, rank, host and mesh.

    Raises:
        UnreadableError: the spans belong to several runs, attempts or meshes.
    """
    found: dict[str, Sequence[object]] = {
        "runs": sorted({span.source.run_id for span in spans}),
        "meshes": sorted({str(span.source.topology) for span in spans}),
        "attempts": sorted({span.source.attempt for span in spans}),
    }
    for what, values in found.items():
        if len(values) > 1:
            raise UnreadableError(
                f"the files contain spans of several {what}: {', '.join(map(str, values[:3]))}"[:300],
                hint="import the files of one attempt of one run at a time",
            )
    return {span.source.rank: span.source for span in spans}
