-- modern: two small roll-ups of spans. They make the list of runs and the head of a page independent of the length of a
-- run, and of its number of ranks. Script 6 describes roll-ups.
--
--     by_rank         1 row for a rank and stage          first and last step, begin and end
--     by_job_window   1 row for a stage and 50 steps      the step time of the job
--
-- After merges 12,288 ranks and a million steps have 12,288 and 20,000 rows of each stage. `by_window` has 245 million.
ALTER TABLE spans ADD PROJECTION IF NOT EXISTS by_rank
(
    SELECT run_id, attempt, stage, rank,
        count(), sum(duration_ns), min(step), max(step), min(start_ns), max(start_ns + duration_ns)
    GROUP BY run_id, attempt, stage, rank
);

-- modern
ALTER TABLE spans ADD PROJECTION IF NOT EXISTS by_job_window
(
    SELECT run_id, attempt, stage, intDiv(step, 50),
        count(), sum(duration_ns), min(step), max(step), max(start_ns + duration_ns),
        groupBitOr(bitShiftLeft(toUInt64(1), modulo(step, 50)))
    GROUP BY run_id, attempt, stage, intDiv(step, 50)
);

-- modern
ALTER TABLE spans MATERIALIZE PROJECTION by_rank;

-- modern
ALTER TABLE spans MATERIALIZE PROJECTION by_job_window
