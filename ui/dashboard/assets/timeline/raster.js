// Draws spans as pixels. A track is first drawn as one line of pixels. The line is then copied to all lines of the track. So the
// time for a frame depends mainly on the number of pixels, not of spans.
//
//   near   |==== F0 ====|== B0 ==|   spans of at least two pixels: a bar with a dark edge; the part spent waiting is lighter
//   far    |fbbbbffbb.f|             shorter spans: each pixel column has the colour of the stage with most time; it is paler if
//                                    the column is less full
//
// Columns are counted from time zero, not from the left of the screen. So columns do not change during panning.

(function (timeline) {
    const LEAST_BAR_PX = 2;
    const EDGE_FROM_PX = 6;
    const LABEL_FROM_PX = 18;
    const FAINTEST = 0.4;

    // A mix of two packed colours (ABGR, opaque), with `share` of the second.
    function mix(a, b, share) {
        const part = (shift) => {
            const from = (a >>> shift) & 255;
            return Math.round(from + (((b >>> shift) & 255) - from) * share) << shift;
        };
        return (0xff000000 | part(16) | part(8) | part(0)) >>> 0;
    }

    // Draws a track into `line`, whose pixels cover the window `view`. Adds spans that are wide enough for text to `labels`.
    // Returns whether the track has a visible span.
    function composeTrack(line, spans, tracks, track, view, colours, labels) {
        const width = line.length;
        const [first, last] = view;
        const scale = width / (last - first);
        const origin = Math.round(first * scale);
        const tally = newTally(line, colours);
        let any = false;
        for (let at = timeline.firstBeyond(tracks, track, first); at < track.last; at += 1) {
            const index = tracks.order[at];
            const start = spans.start[index];
            if (start >= last) {
                break;
            }
            const duration = spans.duration[index];
            const from = start * scale - origin;
            const to = (start + duration) * scale - origin;
            any = true;
            if (to - from < LEAST_BAR_PX) {
                count(tally, spans.stage[index], from, Math.max(to, from + 1e-3), width);
                continue;
            }
            flush(tally);
            const turn = (start + spans.waited[index]) * scale - origin;
            bar(line, spans.stage[index], from, turn, to, colours);
            if (to - from >= LABEL_FROM_PX) {
                labels.push(index, Math.max(0, from), Math.min(width, to));
            }
        }
        flush(tally);
        return any;
    }

    function bar(line, stage, from, turn, to, colours) {
        const begin = Math.max(0, Math.round(from));
        const end = Math.min(line.length, Math.round(to));
        if (end <= begin) {
            return;
        }
        line.fill(colours.stage[stage], begin, end);
        if (turn > from) {
            line.fill(colours.waiting[stage], begin, Math.min(end, Math.max(begin, Math.round(turn))));
        }
        if (to - from >= EDGE_FROM_PX && end === Math.round(to)) {
            line[end - 1] = colours.edge[stage];
        }
    }

    // The current pixel column, and the share of each stage in it.
    function newTally(line, colours) {
        return {line, colours, column: -1, cover: new Float64Array(256), seen: []};
    }

    function count(tally, stage, from, to, width) {
        for (let column = Math.max(0, Math.floor(from)); column < Math.min(width, to); column += 1) {
            const here = Math.max(column, tally.column);
            if (here !== tally.column) {
                flush(tally);
                tally.column = here;
            }
            if (tally.cover[stage] === 0) {
                tally.seen.push(stage);
            }
            tally.cover[stage] += Math.max(1e-6, Math.min(to, column + 1) - Math.max(from, column));
        }
    }

    function flush(tally) {
        if (tally.column < 0) {
            return;
        }
        let [best, total] = [tally.seen[0], 0];
        for (const stage of tally.seen) {
            total += tally.cover[stage];
            best = tally.cover[stage] > tally.cover[best] ? stage : best;
        }
        const share = Math.min(1, Math.max(FAINTEST, total));
        tally.line[tally.column] = mix(tally.line[tally.column], tally.colours.stage[best], share);
        tally.seen.forEach((stage) => { tally.cover[stage] = 0; });
        tally.seen.length = 0;
        tally.column = -1;
    }

    // Copies `line` to the lines `from` to `to` of an image of the same width.
    function copyDown(pixels, line, from, to) {
        if (to <= from) {
            return;
        }
        const width = line.length;
        pixels.set(line, from * width);
        for (let done = 1; done < to - from; done *= 2) {
            const more = Math.min(done, to - from - done);
            pixels.copyWithin((from + done) * width, from * width, (from + more) * width);
        }
    }

    Object.assign(timeline, {mix, composeTrack, copyDown});
})(window.rankscopeTimeline ??= {});
