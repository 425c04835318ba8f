-- modern: roll-ups of spans, kept inside each part by the engine: stored with the rows or not at all, and gone with them.
--
--     spans       101 a rank and step    everything
--     by_step      12 a rank and step    time of each rank in each stage and step
--     by_window    12 a rank, 50 steps   the same of 50 steps
--
-- Of the steps in which a stage occurred each leaves a bit, so that means by step need not be summed step by step.
--
-- Nobody names them: the engine takes one where a query groups by its columns and asks for its aggregates alone. Old
-- servers have none and give the same answers from the spans. What was stored before is rolled up in the background
-- (MATERIALIZE returns at once and goes on after a restart); until a part is done it answers from its spans.
ALTER TABLE spans ADD PROJECTION IF NOT EXISTS by_step
(
    SELECT run_id, attempt, stage, step, rank, chunk,
        count(), sum(duration_ns), sum(cpu_ns), min(cpu_ns),
        groupBitOr(bitShiftLeft(toUInt64(1), modulo(step, 50)))
    GROUP BY run_id, attempt, stage, step, rank, chunk
);

-- modern
ALTER TABLE spans ADD PROJECTION IF NOT EXISTS by_window
(
    SELECT run_id, attempt, stage, intDiv(step, 50), rank, chunk,
        count(), sum(duration_ns), sum(cpu_ns), min(cpu_ns),
        min(step), max(step), min(start_ns), max(start_ns + duration_ns),
        groupBitOr(bitShiftLeft(toUInt64(1), modulo(step, 50)))
    GROUP BY run_id, attempt, stage, intDiv(step, 50), rank, chunk
);

-- modern
ALTER TABLE spans MATERIALIZE PROJECTION by_step;

-- modern
ALTER TABLE spans MATERIALIZE PROJECTION by_window;

-- modern: stamps jitter, numbers of records go on in equal strides; what is stored from now on is packed accordingly
ALTER TABLE spans MODIFY COLUMN start_ns CODEC(Delta, T64, ZSTD(1));

-- modern
ALTER TABLE spans MODIFY COLUMN issue_ns CODEC(Delta, T64, ZSTD(1));

-- modern
ALTER TABLE spans MODIFY COLUMN seq CODEC(DoubleDelta, ZSTD(1))
