// Finds the span at a place on the screen, and the place of a span. Places are CSS pixels from the upper left corner of the canvas.

(function (timeline) {
    const NEAR_PX = 3;

    function xOf(view, tick) {
        const [first, last] = view.window;
        return view.gutter + ((tick - first) / (last - first)) * (view.width - view.gutter);
    }

    function tickAt(view, x) {
        const [first, last] = view.window;
        return first + ((x - view.gutter) / (view.width - view.gutter)) * (last - first);
    }

    // The row at a place. undefined: between or below rows. Pinned rows cover others.
    function placeAt(view, y) {
        const below = y - timeline.AXIS_PX;
        return [...view.placed].reverse().find(({from, to}) => below >= from && below < to);
    }

    // The span at a place, or the nearest one within a few pixels. -1: none.
    function spanAt(view, x, y) {
        const place = placeAt(view, y);
        return place ? indexAt(view, view, view.tracks.tracksOfRow[place.row], place, x, y) : -1;
    }

    // The same for some tracks of a layer (spans and their tracks).
    function indexAt(view, layer, tracksThere, place, x, y) {
        if (x < view.gutter) {
            return -1;
        }
        const share = (y - timeline.AXIS_PX - place.top) / view.rowHeight;
        const near = (NEAR_PX * (view.window[1] - view.window[0])) / Math.max(1, view.width - view.gutter);
        for (const track of tracksThere) {
            const {top, level} = view.shares[track.lane];
            const begin = top + track.level * level;
            if (share >= begin && share < begin + level) {
                return nearest(layer, track, tickAt(view, x), near);
            }
        }
        return -1;
    }

    function nearest({spans, tracks}, track, tick, near) {
        let [best, distance] = [-1, near];
        for (let at = timeline.firstBeyond(tracks, track, tick - near); at < track.last; at += 1) {
            const index = tracks.order[at];
            const [start, end] = [spans.start[index], spans.start[index] + spans.duration[index]];
            if (start > tick + near) {
                break;
            }
            const away = Math.max(start - tick, tick - end, 0);
            if (away < distance || (away === distance && best >= 0 && spans.duration[index] > spans.duration[best])) {
                [best, distance] = [index, away];
            }
        }
        return best;
    }

    // The idle time at a place, as an index into `spans.gaps`. -1: none.
    function gapAt(view, x, y) {
        const place = placeAt(view, y);
        const {gaps} = view.spans;
        const tick = tickAt(view, x);
        return place
            ? gaps.row.findIndex((row, at) =>
                row === place.row && tick >= gaps.start[at] && tick < gaps.start[at] + gaps.duration[at])
            : -1;
    }

    // The rectangle of a span. null: it is not on the screen.
    function spanBox(view, index) {
        if (!(index >= 0)) {
            return null;
        }
        return boxOn(view, view, view.placed.find(({row}) => row === view.spans.row[index]), index);
    }

    // The same for a span of a layer, in a visible row.
    function boxOn(view, layer, place, index) {
        const {spans} = layer;
        const {shares, rowHeight} = view;
        const [start, end] = [spans.start[index], spans.start[index] + spans.duration[index]];
        if (!place || end < view.window[0] || start > view.window[1]) {
            return null;
        }
        const {top, level} = shares[spans.lane[index]];
        const y = place.top + (top + levelOf(layer, index) * level) * rowHeight;
        if (y >= place.to || y + level * rowHeight * 0.94 <= place.from) {
            return null;
        }
        const x = xOf(view, start);
        return {x, y: timeline.AXIS_PX + y, width: xOf(view, end) - x, height: level * rowHeight * 0.94};
    }

    function levelOf({spans, tracks}, index) {
        const [row, lane] = [spans.row[index], spans.lane[index]];
        const holds = ({first, last}) => tracks.order.subarray(first, last).includes(index);
        return tracks.tracksOfRow[row].find((track) => track.lane === lane && holds(track)).level;
    }

    // The span before (`by` = -1) or after (1) another span in its lane. -1: none.
    function neighbour(spans, index, by) {
        const other = index + by;
        const inside = other >= 0 && other < spans.count;
        return inside && spans.row[other] === spans.row[index] && spans.lane[other] === spans.lane[index] ? other : -1;
    }

    // The rectangle of a marked area [first, last, top, bottom] (nanoseconds and ranks). null: its rows are not shown.
    function areaBox(view, [firstNs, lastNs, top, bottom]) {
        const rowAt = (rank) => view.displayed.rows.indexOf(view.spans.rowOfRank.get(rank));
        const rows = [rowAt(top), rowAt(bottom)].sort((a, b) => a - b);
        if (rows[0] < 0) {
            return null;
        }
        const y = (at) => {
            const scrolled = at < view.displayed.numPinned ? 0 : view.scrollTop;
            return timeline.AXIS_PX + at * view.rowHeight - scrolled;
        };
        const x = xOf(view, firstNs / view.spans.tickNs);
        const height = y(rows[1]) + view.rowHeight - y(rows[0]);
        return {x, y: y(rows[0]), width: xOf(view, lastNs / view.spans.tickNs) - x, height};
    }

    Object.assign(timeline, {xOf, tickAt, placeAt, spanAt, indexAt, gapAt, spanBox, boxOn, neighbour, areaBox});
})(window.rankscopeTimeline ??= {});
