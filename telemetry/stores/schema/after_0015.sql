-- The tables as scripts 1 to 15 leave them. A new embedded store is created from this file in a fifth of the processor
-- time of the scripts. Script 16 and later ones run after it. This file is not changed when a script is added.

CREATE TABLE IF NOT EXISTS spans
(
    run_id LowCardinality(String),
    attempt UInt32 CODEC(ZSTD(1)),
    rank UInt32 CODEC(ZSTD(1)),
    seq UInt64 CODEC(DoubleDelta, ZSTD(1)),
    stage UInt8 CODEC(ZSTD(1)),
    stream UInt8 CODEC(ZSTD(1)),
    step UInt32 CODEC(ZSTD(1)),
    microbatch Int16 CODEC(ZSTD(1)),
    chunk Int16 CODEC(ZSTD(1)),
    peer Int32 CODEC(ZSTD(1)),
    op_seq UInt32 CODEC(Delta, ZSTD(1)),
    start_ns Int64 CODEC(Delta, T64, ZSTD(1)),
    duration_ns Int64 CODEC(T64, ZSTD(1)),
    cpu_ns Int64 CODEC(T64, ZSTD(1)),
    issue_ns Int64 CODEC(Delta, T64, ZSTD(1)),
    size_bytes UInt64 CODEC(T64, ZSTD(1)),
    inserted_on Date DEFAULT today(),
    opened_ns Int64 DEFAULT -1 CODEC(Delta, ZSTD(1)),
    clock UInt8 CODEC(ZSTD(1)),
    PROJECTION by_step
    (
        SELECT run_id, attempt, stage, step, rank, chunk, count(), sum(duration_ns), sum(cpu_ns),
            min(cpu_ns), groupBitOr(bitShiftLeft(toUInt64(1), modulo(step, 50)))
        GROUP BY run_id, attempt, stage, step, rank, chunk
    ),
    PROJECTION by_window
    (
        SELECT run_id, attempt, stage, intDiv(step, 50), rank, chunk, count(), sum(duration_ns),
            sum(cpu_ns), min(cpu_ns), min(step), max(step), min(start_ns), max(start_ns + duration_ns),
            groupBitOr(bitShiftLeft(toUInt64(1), modulo(step, 50)))
        GROUP BY run_id, attempt, stage, intDiv(step, 50), rank, chunk
    ),
    PROJECTION opening_water
    (
        SELECT run_id, attempt, rank, opened_ns, max(seq)
        GROUP BY run_id, attempt, rank, opened_ns
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, stage, step, rank, start_ns)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS marks
(
    run_id LowCardinality(String),
    attempt UInt32,
    rank UInt32,
    seq UInt64,
    step UInt32,
    at_ns Int64 CODEC(Delta, ZSTD(1)),
    name LowCardinality(String),
    text String CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today(),
    opened_ns Int64 DEFAULT -1 CODEC(Delta, ZSTD(1)),
    PROJECTION opening_water
    (
        SELECT run_id, attempt, rank, opened_ns, max(seq)
        GROUP BY run_id, attempt, rank, opened_ns
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, at_ns, rank)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS samples
(
    run_id LowCardinality(String),
    attempt UInt32,
    rank UInt32,
    seq UInt64 CODEC(Delta, ZSTD(1)),
    step UInt32 CODEC(Delta, ZSTD(1)),
    at_ns Int64 CODEC(Delta, ZSTD(1)),
    metric LowCardinality(String),
    value Float64 CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today(),
    opened_ns Int64 DEFAULT -1 CODEC(Delta, ZSTD(1)),
    PROJECTION opening_water
    (
        SELECT run_id, attempt, rank, opened_ns, max(seq)
        GROUP BY run_id, attempt, rank, opened_ns
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, metric, step, rank)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS ranks
(
    run_id LowCardinality(String),
    attempt UInt32,
    rank UInt32,
    host LowCardinality(String),
    local_rank UInt32,
    pid UInt32,
    dp_size UInt32,
    pp_size UInt32,
    tp_size UInt32,
    started_ns Int64,
    meta String CODEC(ZSTD(1)),
    opened_ns Int64,
    mesh String
)
ENGINE = ReplacingMergeTree
ORDER BY (run_id, attempt, rank)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS heartbeats
(
    run_id LowCardinality(String),
    attempt UInt32,
    rank UInt32,
    at_ns Int64,
    beat_ns Int64,
    step UInt32,
    stage UInt8,
    alive UInt8,
    ended UInt8,
    recorded UInt64,
    dropped UInt64
)
ENGINE = ReplacingMergeTree
ORDER BY (run_id, attempt, rank)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS evidence
(
    run_id LowCardinality(String),
    attempt UInt32,
    rank UInt32,
    at_ns Int64,
    kind LowCardinality(String),
    body String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(at_ns)
ORDER BY (run_id, attempt, rank, kind)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS host_samples
(
    run_id LowCardinality(String),
    attempt UInt32,
    host LowCardinality(String),
    device LowCardinality(String),
    metric LowCardinality(String),
    at_ns Int64 CODEC(Delta, ZSTD(1)),
    value Float64 CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, metric, host, device, at_ns)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS host_events
(
    run_id LowCardinality(String),
    attempt UInt32,
    host LowCardinality(String),
    device LowCardinality(String),
    at_ns Int64,
    name LowCardinality(String),
    text String CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, at_ns, host, device, name, text)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS claims
(
    run_id LowCardinality(String),
    attempt UInt32,
    rank UInt32,
    ballot UInt64
)
ENGINE = ReplacingMergeTree(ballot)
ORDER BY (run_id, attempt, rank)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS host_clocks
(
    run_id LowCardinality(String),
    attempt UInt32,
    host LowCardinality(String),
    reference LowCardinality(String),
    first_step UInt32,
    last_step UInt32,
    first_ns Int64,
    last_ns Int64,
    offset_ns Int64,
    drift_ppm Float64,
    bound_ns Int64,
    num_events UInt32,
    method LowCardinality(String),
    reason String,
    estimated_ns Int64
)
ENGINE = ReplacingMergeTree(estimated_ns)
ORDER BY (run_id, attempt, first_step, host, first_ns)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS otel_spans
(
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration UInt64 CODEC(T64, ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    `Events.Timestamp` Array(DateTime64(9)) CODEC(ZSTD(1)),
    `Events.Name` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `Events.Attributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `Links.TraceId` Array(String) CODEC(ZSTD(1)),
    `Links.SpanId` Array(String) CODEC(ZSTD(1)),
    `Links.TraceState` Array(String) CODEC(ZSTD(1)),
    `Links.Attributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    inserted_on Date MATERIALIZED today(),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS otel_logs
(
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    TimestampTime DateTime DEFAULT toDateTime(Timestamp),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    TraceFlags UInt8,
    SeverityText LowCardinality(String) CODEC(ZSTD(1)),
    SeverityNumber UInt8,
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    Body String CODEC(ZSTD(1)),
    ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion LowCardinality(String) CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    LogAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    EventName String CODEC(ZSTD(1)),
    inserted_on Date MATERIALIZED today(),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (ServiceName, TimestampTime, Timestamp)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS otel_metrics_gauge
(
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl String CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
    ScopeSchemaUrl String CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    MetricName LowCardinality(String) CODEC(ZSTD(1)),
    MetricDescription String CODEC(ZSTD(1)),
    MetricUnit String CODEC(ZSTD(1)),
    Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    TimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    Flags UInt32 CODEC(ZSTD(1)),
    Value Float64 CODEC(ZSTD(1)),
    `Exemplars.FilteredAttributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `Exemplars.TimeUnix` Array(DateTime64(9)) CODEC(ZSTD(1)),
    `Exemplars.Value` Array(Float64) CODEC(ZSTD(1)),
    `Exemplars.SpanId` Array(String) CODEC(ZSTD(1)),
    `Exemplars.TraceId` Array(String) CODEC(ZSTD(1)),
    inserted_on Date MATERIALIZED today()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS otel_metrics_sum
(
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl String CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
    ScopeSchemaUrl String CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    MetricName LowCardinality(String) CODEC(ZSTD(1)),
    MetricDescription String CODEC(ZSTD(1)),
    MetricUnit String CODEC(ZSTD(1)),
    Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    TimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    Flags UInt32 CODEC(ZSTD(1)),
    Value Float64 CODEC(ZSTD(1)),
    `Exemplars.FilteredAttributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `Exemplars.TimeUnix` Array(DateTime64(9)) CODEC(ZSTD(1)),
    `Exemplars.Value` Array(Float64) CODEC(ZSTD(1)),
    `Exemplars.SpanId` Array(String) CODEC(ZSTD(1)),
    `Exemplars.TraceId` Array(String) CODEC(ZSTD(1)),
    AggregationTemporality Int32 CODEC(ZSTD(1)),
    IsMonotonic Bool,
    inserted_on Date MATERIALIZED today()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS otel_metrics_histogram
(
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl String CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
    ScopeSchemaUrl String CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    MetricName LowCardinality(String) CODEC(ZSTD(1)),
    MetricDescription String CODEC(ZSTD(1)),
    MetricUnit String CODEC(ZSTD(1)),
    Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    TimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    Flags UInt32 CODEC(ZSTD(1)),
    Count UInt64 CODEC(ZSTD(1)),
    Sum Float64 CODEC(ZSTD(1)),
    BucketCounts Array(UInt64) CODEC(ZSTD(1)),
    ExplicitBounds Array(Float64) CODEC(ZSTD(1)),
    `Exemplars.FilteredAttributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `Exemplars.TimeUnix` Array(DateTime64(9)) CODEC(ZSTD(1)),
    `Exemplars.Value` Array(Float64) CODEC(ZSTD(1)),
    `Exemplars.SpanId` Array(String) CODEC(ZSTD(1)),
    `Exemplars.TraceId` Array(String) CODEC(ZSTD(1)),
    Min Float64 CODEC(ZSTD(1)),
    Max Float64 CODEC(ZSTD(1)),
    AggregationTemporality Int32 CODEC(ZSTD(1)),
    inserted_on Date MATERIALIZED today()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS otel_metrics_exponential_histogram
(
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl String CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
    ScopeSchemaUrl String CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    MetricName LowCardinality(String) CODEC(ZSTD(1)),
    MetricDescription String CODEC(ZSTD(1)),
    MetricUnit String CODEC(ZSTD(1)),
    Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    TimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    Flags UInt32 CODEC(ZSTD(1)),
    Count UInt64 CODEC(ZSTD(1)),
    Sum Float64 CODEC(ZSTD(1)),
    Scale Int32 CODEC(ZSTD(1)),
    ZeroCount UInt64 CODEC(ZSTD(1)),
    PositiveOffset Int32 CODEC(ZSTD(1)),
    PositiveBucketCounts Array(UInt64) CODEC(ZSTD(1)),
    NegativeOffset Int32 CODEC(ZSTD(1)),
    NegativeBucketCounts Array(UInt64) CODEC(ZSTD(1)),
    `Exemplars.FilteredAttributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `Exemplars.TimeUnix` Array(DateTime64(9)) CODEC(ZSTD(1)),
    `Exemplars.Value` Array(Float64) CODEC(ZSTD(1)),
    `Exemplars.SpanId` Array(String) CODEC(ZSTD(1)),
    `Exemplars.TraceId` Array(String) CODEC(ZSTD(1)),
    Min Float64 CODEC(ZSTD(1)),
    Max Float64 CODEC(ZSTD(1)),
    AggregationTemporality Int32 CODEC(ZSTD(1)),
    inserted_on Date MATERIALIZED today()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS otel_metrics_summary
(
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl String CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
    ScopeSchemaUrl String CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    MetricName LowCardinality(String) CODEC(ZSTD(1)),
    MetricDescription String CODEC(ZSTD(1)),
    MetricUnit String CODEC(ZSTD(1)),
    Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    StartTimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    TimeUnix DateTime64(9) CODEC(Delta, ZSTD(1)),
    Flags UInt32 CODEC(ZSTD(1)),
    Count UInt64 CODEC(ZSTD(1)),
    Sum Float64 CODEC(ZSTD(1)),
    `ValueAtQuantiles.Quantile` Array(Float64) CODEC(ZSTD(1)),
    `ValueAtQuantiles.Value` Array(Float64) CODEC(ZSTD(1)),
    inserted_on Date MATERIALIZED today()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS alerts
(
    run_id LowCardinality(String),
    attempt UInt32,
    fingerprint String,
    began_ns Int64,
    at_ns Int64,
    phase LowCardinality(String),
    body String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(at_ns)
ORDER BY (run_id, attempt, fingerprint, began_ns)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS profile_requests
(
    run_id LowCardinality(String),
    attempt UInt32,
    rank UInt32,
    profile_id String,
    at_ns Int64,
    steps UInt32,
    seconds UInt32,
    finding String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
ORDER BY (run_id, attempt, at_ns, profile_id, rank)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS profile_states
(
    run_id LowCardinality(String),
    attempt UInt32,
    rank UInt32,
    profile_id String,
    at_ns Int64,
    phase LowCardinality(String),
    body String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(at_ns)
ORDER BY (run_id, attempt, profile_id, rank)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS profile_parts
(
    run_id LowCardinality(String),
    attempt UInt32,
    rank UInt32,
    profile_id String,
    part UInt32,
    content String CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, profile_id, rank, part)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480;

CREATE TABLE IF NOT EXISTS findings
(
    run_id LowCardinality(String),
    attempt UInt32,
    fingerprint String,
    raised_ns Int64,
    at_ns Int64,
    state LowCardinality(String),
    kind LowCardinality(String),
    severity LowCardinality(String),
    onset_step Int64,
    onset_ns Int64,
    onset_exact UInt8,
    hosts String CODEC(ZSTD(1)),
    ranks String CODEC(ZSTD(1)),
    device String CODEC(ZSTD(1)),
    stage LowCardinality(String),
    summary String CODEC(ZSTD(1)),
    next_step String CODEC(ZSTD(1)),
    seconds_lost Float64,
    basis LowCardinality(String),
    cause String,
    inserted_on Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, fingerprint, raised_ns, at_ns, state)
TTL inserted_on + toIntervalDay(365)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480, ttl_only_drop_parts = 1, materialize_ttl_recalculate_only = 1;

CREATE TABLE IF NOT EXISTS finding_actions
(
    run_id LowCardinality(String),
    attempt UInt32,
    fingerprint String,
    raised_ns Int64,
    at_ns Int64,
    action_id String,
    action LowCardinality(String),
    who String CODEC(ZSTD(1)),
    text String CODEC(ZSTD(1)),
    until_ns Int64,
    inserted_on Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, fingerprint, raised_ns, at_ns, action_id)
TTL inserted_on + toIntervalDay(365)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480, ttl_only_drop_parts = 1, materialize_ttl_recalculate_only = 1;

CREATE TABLE IF NOT EXISTS annotations
(
    run_id LowCardinality(String),
    kind LowCardinality(String),
    name String,
    at_ns Int64,
    annotation_id String,
    edit LowCardinality(String),
    who String CODEC(ZSTD(1)),
    text String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
ORDER BY (run_id, kind, name, at_ns, annotation_id)
SETTINGS index_granularity = 8192, old_parts_lifetime = 480
