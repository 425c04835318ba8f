-- modern: spans under the column names of the OpenTelemetry exporter for ClickHouse, as Grafana and HyperDX expect
-- them, and below them what others sent by OTLP. A trace is a step of an attempt; every span of a rank hangs below
-- that rank's step span. The ids are also those of telemetry/stores/queries/spans.py. Filter by ServiceName (the run):
-- it is the first column of the tables' order.
CREATE OR REPLACE VIEW otel_traces AS
SELECT
    fromUnixTimestamp64Nano(start_ns) AS Timestamp,
    concat(leftPad(lower(hex(sipHash64('trace', run_id, attempt, step))), 16, '0'),
           leftPad(lower(hex(sipHash64('trace, on', run_id, attempt, step))), 16, '0')) AS TraceId,
    leftPad(lower(hex(if(stage = 1, sipHash64('step', run_id, attempt, step, rank),
                         sipHash64('span', run_id, attempt, rank, seq)))), 16, '0') AS SpanId,
    if(stage = 1, '', leftPad(lower(hex(sipHash64('step', run_id, attempt, step, rank))), 16, '0')) AS ParentSpanId,
    '' AS TraceState,
    transform(stage, {stage_codes}, {stage_labels}, 'unknown') AS SpanName,
    'Internal' AS SpanKind,
    run_id AS ServiceName,
    map('rankscope.run.id', run_id, 'rankscope.attempt', toString(attempt), 'rankscope.rank', toString(rank))
        AS ResourceAttributes,
    'rankscope' AS ScopeName,
    '' AS ScopeVersion,
    map('rankscope.step', toString(step), 'rankscope.microbatch', toString(microbatch),
        'rankscope.chunk', toString(chunk), 'rankscope.peer', toString(greatest(peer, -1)),
        'rankscope.size_bytes', toString(size_bytes),
        'rankscope.stream', transform(stream, {stream_codes}, {stream_labels}, 'unknown')) AS SpanAttributes,
    toUInt64(duration_ns) AS Duration,
    'Unset' AS StatusCode,
    '' AS StatusMessage,
    CAST([], 'Array(DateTime64(9))') AS `Events.Timestamp`,
    CAST([], 'Array(String)') AS `Events.Name`,
    CAST([], 'Array(Map(String, String))') AS `Events.Attributes`,
    CAST([], 'Array(String)') AS `Links.TraceId`,
    CAST([], 'Array(String)') AS `Links.SpanId`,
    CAST([], 'Array(String)') AS `Links.TraceState`,
    CAST([], 'Array(Map(String, String))') AS `Links.Attributes`
FROM spans
UNION ALL
SELECT
    Timestamp, TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, ServiceName,
    CAST(ResourceAttributes, 'Map(String, String)') AS ResourceAttributes, ScopeName, ScopeVersion,
    CAST(SpanAttributes, 'Map(String, String)') AS SpanAttributes, Duration, StatusCode, StatusMessage,
    `Events.Timestamp`, `Events.Name`, CAST(`Events.Attributes`, 'Array(Map(String, String))') AS `Events.Attributes`,
    `Links.TraceId`, `Links.SpanId`, `Links.TraceState`,
    CAST(`Links.Attributes`, 'Array(Map(String, String))') AS `Links.Attributes`
FROM otel_spans;
