-- modern: what was merged stays on the disk for eight minutes, as a server has it by itself; the embedded engine would delete
-- it within a minute, and with it the only whole copy where the disk was full while it merged (stores/whole_parts.py).
ALTER TABLE spans MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE marks MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE samples MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE ranks MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE heartbeats MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE evidence MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE host_samples MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE host_events MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE claims MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE host_clocks MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE alerts MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE otel_spans MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE otel_logs MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE otel_metrics_gauge MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE otel_metrics_sum MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE otel_metrics_histogram MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE otel_metrics_exponential_histogram MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE otel_metrics_summary MODIFY SETTING old_parts_lifetime = 480
