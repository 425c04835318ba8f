// Decodes base64 columns of the server (ui/dashboard/pages/timeline/spans_buffer.py) to typed arrays. Times are ticks since the
// start of the earliest span.

(function (timeline) {
    const ARRAYS = {
        u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array,
    };

    function unpack({dtype, bdata}) {
        const text = atob(bdata);
        const bytes = new Uint8Array(text.length);
        for (let at = 0; at < text.length; at += 1) {
            bytes[at] = text.charCodeAt(at);
        }
        return new ARRAYS[dtype](bytes.buffer);
    }

    function unpackAll(columns) {
        return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, unpack(column)]));
    }

    // The spans of a timeline: `columns` are arrays of the same length, ordered by row, lane, start.
    function decode(data) {
        const steps = unpackAll(data.steps);
        const columns = unpackAll(data.columns);
        return {
            count: data.count,
            tickNs: data.tick_ns,
            end: Math.max(data.end, 1),
            stepOf: (index) => data.step + (columns.number?.[index] ?? 0),
            stepRanges: stepRanges(steps, data.step),
            rows: data.rows,
            lanes: data.lanes,
            stages: new Map(Object.entries(data.stages).map(([code, stage]) => [Number(code), stage])),
            causes: data.causes,
            ...columns,
            steps,
            stepsOfRow: byRow(steps.row, data.rows.length),
            gaps: unpackAll(data.gaps),
            open: new Map(data.open.map((open) => [open.index, open])),
            rowOfRank: new Map(data.rows.map(({rank}, row) => [rank, row])),
            counters: timeline.decodeCounters(data.counters, data.rows.length),
            ideal: data.ideal ? decodeIdeal(data) : null,
        };
    }

    // The ideal timeline, in the format of spans. All ranks of a pipeline rank use the same row.
    function decodeIdeal({ideal, lanes, tick_ns: tickNs}) {
        return {
            count: ideal.count,
            tickNs,
            lanes,
            rows: Array.from({length: ideal.groups}),
            rowOf: ideal.rows,
            firstLane: ideal.lanes[0],
            begin: ideal.begin,
            end: ideal.end,
            lost: ideal.lost,
            ...unpackAll(ideal.columns),
        };
    }

    // Begin and end of each step over all rows, ascending: [{step, start, end}].
    function stepRanges({start, duration, number}, first) {
        const found = new Map();
        start.forEach((begin, at) => {
            const step = first + (number?.[at] ?? 0);
            const known = found.get(step) ?? {step, start: Infinity, end: 0};
            found.set(step, {step, start: Math.min(known.start, begin), end: Math.max(known.end, begin + duration[at])});
        });
        return [...found.values()].sort((a, b) => a.step - b.step);
    }

    function byRow(row, numRows) {
        const found = Array.from({length: numRows}, () => []);
        row.forEach((number, at) => found[number].push(at));
        return found;
    }

    // The key of a span in its run, also used in the address. `seq` is text, because it may have 64 bits.
    function keyOf(spans, index) {
        const {rank, first_seq: first} = spans.rows[spans.row[index]];
        return {rank, seq: String(BigInt(first) + BigInt(spans.seq[index]))};
    }

    // The index of the span with a key. -1: it is not in this timeline.
    function indexOf(spans, key) {
        const row = key ? spans.rowOfRank.get(key.rank) : undefined;
        if (row === undefined) {
            return -1;
        }
        const seq = Number(BigInt(key.seq) - BigInt(spans.rows[row].first_seq));
        for (let index = firstOfRow(spans, row); index < spans.count && spans.row[index] === row; index += 1) {
            if (spans.seq[index] === seq) {
                return index;
            }
        }
        return -1;
    }

    function firstOfRow(spans, row) {
        let low = 0;
        let high = spans.count;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (spans.row[middle] < row) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    // Other spans of the same operation. For an open span: the open spans of the ranks that it waits for, if they are known.
    function partners(spans, index) {
        const waits = spans.open.get(index)?.waits ?? [];
        if (waits.length) {
            return [...spans.open.keys()].filter((other) => waits.includes(spans.rows[spans.row[other]].rank));
        }
        const flow = spans.flow[index];
        const found = [];
        for (let other = 0; flow > 0 && other < spans.count; other += 1) {
            if (spans.flow[other] === flow && other !== index) {
                found.push(other);
            }
        }
        return found;
    }

    Object.assign(timeline, {unpack, decode, keyOf, indexOf, firstOfRow, partners});
})(window.rankscopeTimeline ??= {});
