// Places of spans: levels in a lane with overlapping spans, lanes in a row, and rows with the pinned ones on top.
//
//   rank 4   compute  |===== F0 =====|  |=== B0 ===|
//            pp         |s|   |r-----|                  level 0
//                          |r--|                        level 1: begins before the span above has ended
//            host     |load|

(function (timeline) {
    const MAX_LEVELS = 8;
    const BLOCK = 0.9;
    const [LEAST_ROW, HIGHEST_ROW, FILLED] = [18, 132, 560];
    const [LEAST_VIEW_PX, MOST_VIEW_PX, SHARE_OF_WINDOW] = [300, 760, 0.72];
    // Axis, minimap and margins: what is beside the rows in a window that the timeline fills.
    const BESIDE_ROWS_PX = 100;
    // Spans that touch each other can overlap a little: start times are rounded when the clocks of hosts are aligned, and device
    // times when they are recorded. Such an overlap is at most this share of the earlier span, and at most this time.
    const [TOUCHING_SHARE, TOUCHING_NS] = [0.01, 10_000];

    // A track is one level of a lane in a row. Its spans are `order[first..last)`, by start. `reach`: the latest end up to a span.
    function tracksOf(spans) {
        const order = new Uint32Array(spans.count);
        const reach = new Float64Array(spans.count);
        const tracks = [];
        const levels = spans.lanes.map(() => 0);
        let begin = 0;
        while (begin < spans.count) {
            let end = begin;
            while (end < spans.count && spans.row[end] === spans.row[begin] && spans.lane[end] === spans.lane[begin]) {
                end += 1;
            }
            const found = levelsOf(spans, begin, end);
            let at = begin;
            found.forEach((indices, level) => {
                tracks.push({row: spans.row[begin], lane: spans.lane[begin], level, first: at, last: at + indices.length});
                at = fill(spans, indices, order, reach, at);
            });
            levels[spans.lane[begin]] = Math.max(levels[spans.lane[begin]], found.length);
            begin = end;
        }
        return {order, reach, tracks, levels, tracksOfRow: tracksByRow(tracks, spans.rows.length)};
    }

    // Each span gets the first level that is free at its start, apart from rounding. If all levels are used, it gets the last one.
    function levelsOf(spans, begin, end) {
        const found = [];
        const free = [];
        for (let index = begin; index < end; index += 1) {
            const start = spans.start[index];
            let level = free.findIndex((at) => at <= start);
            if (level < 0) {
                level = Math.min(found.length, MAX_LEVELS - 1);
            }
            (found[level] ??= []).push(index);
            const duration = spans.duration[index];
            const touching = Math.min(TOUCHING_SHARE * duration, TOUCHING_NS / spans.tickNs);
            free[level] = Math.max(free[level] ?? 0, start + duration - touching);
        }
        return found;
    }

    function fill(spans, indices, order, reach, at) {
        let latest = 0;
        for (const index of indices) {
            latest = Math.max(latest, spans.start[index] + spans.duration[index]);
            order[at] = index;
            reach[at] = latest;
            at += 1;
        }
        return at;
    }

    function tracksByRow(tracks, numRows) {
        const found = Array.from({length: numRows}, () => []);
        tracks.forEach((track) => found[track.row].push(track));
        return found;
    }

    // The first span of a track that may end after `at`.
    function firstBeyond({order, reach}, track, at) {
        let [low, high] = [track.first, track.last];
        while (low < high) {
            const middle = (low + high) >> 1;
            if (reach[middle] <= at) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    // Top and height of each lane, and height of its levels, as shares of a row. Lanes without spans have no height.
    function laneShares(lanes, levels) {
        const weights = lanes.map(({weight}, lane) => (levels[lane] ? weight * (1 + 0.5 * (levels[lane] - 1)) : 0));
        const total = weights.reduce((sum, weight) => sum + weight, 0) || 1;
        let top = 0;
        return weights.map((weight, lane) => {
            const height = (BLOCK * weight) / total;
            const share = {top, height, level: height / Math.max(1, levels[lane])};
            top += height;
            return share;
        });
    }

    // `factor`: height of a row with an ideal strip / height without it.
    function rowHeight(numRows, factor = 1) {
        return Math.round(Math.min(Math.max(FILLED / Math.max(1, numRows), LEAST_ROW), HIGHEST_ROW) * factor);
    }

    // Height of the visible rows. All rows are visible if they fit into the window. Otherwise they scroll in a part of it.
    function viewHeight(rowsPx, windowPx) {
        const most = Math.max(LEAST_VIEW_PX, Math.min(MOST_VIEW_PX, windowPx * SHARE_OF_WINDOW));
        return rowsPx <= windowPx - BESIDE_ROWS_PX ? rowsPx : Math.min(rowsPx, most);
    }

    // `Rows 1 to 6 of 8. ...`: the rows of which more than half is visible. Empty if these are all. Pinned rows do not scroll.
    function hiddenRowsText({placed, displayed: {rows, numPinned}, rowHeight}) {
        const visible = placed.filter(({from, to}) => to - from > rowHeight / 2).map(({row}) => rows.indexOf(row) + 1);
        const moving = visible.filter((number) => number > numPinned);
        if (visible.length === rows.length || !moving.length) {
            return "";
        }
        const range = `${Math.min(...moving)} to ${Math.max(...moving)} of ${rows.length}`;
        return `${numPinned ? "Pinned rows and rows" : "Rows"} ${range}. Drag, or Shift + wheel, to scroll.`;
    }

    // Numbers of the rows from the top: the pinned ranks in their order, then the others.
    function displayedRows(spans, pinned) {
        const first = pinned.map((rank) => spans.rowOfRank.get(rank)).filter((row) => row !== undefined);
        const rest = spans.rows.map((_, row) => row).filter((row) => !first.includes(row));
        return {rows: [...first, ...rest], numPinned: first.length};
    }

    // Visible rows {row, top, from, to}, in pixels below the axis; `from` to `to` is the visible part. Pinned rows are last, so
    // that they are painted over the others.
    function placedRows({rows, numPinned}, height, scrollTop, viewHeight) {
        const edge = Math.min(numPinned * height, viewHeight);
        const placed = [];
        const begin = numPinned + Math.max(0, Math.floor(scrollTop / height));
        for (let at = begin; at < rows.length && at * height - scrollTop < viewHeight; at += 1) {
            const top = at * height - scrollTop;
            placed.push({row: rows[at], top, from: Math.max(top, edge), to: Math.min(top + height, viewHeight)});
        }
        for (let at = 0; at < numPinned && at * height < viewHeight; at += 1) {
            placed.push({row: rows[at], top: at * height, from: at * height, to: Math.min((at + 1) * height, viewHeight)});
        }
        return placed;
    }

    Object.assign(timeline, {
        BLOCK, tracksOf, firstBeyond, laneShares, rowHeight, viewHeight, hiddenRowsText, displayedRows, placedRows,
    });
})(window.rankscopeTimeline ??= {});
