// The ideal timeline: a strip below the lanes of each row. It shows the operations of the step at their times in the replay.
//
//   rank 4   compute  |===== F0 =====|==== B0 ====|
//            ideal    |=== F0 ===|== B0 ==|:: lost ::|
//
// All ranks of a pipeline rank have the same strip. Ideal bar n of a stage corresponds to measured bar n of that stage.

(function (timeline) {
    const FONT = "11px -apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";
    const LEAST_TEXT_PX = 12;

    // The layer of the ideal timeline: spans and their tracks.
    function stripOf(ideal) {
        return {spans: ideal, tracks: timeline.tracksOf(ideal)};
    }

    // The background of a strip: the duration of the ideal step, and the time that the measured step took longer.
    function idealLine(line, {begin, end, lost}, [first, last], colours) {
        const x = (tick) => Math.min(Math.max(Math.round(((tick - first) * line.length) / (last - first)), 0), line.length);
        line.fill(colours.body);
        line.fill(colours.ideal, x(begin), x(end));
        line.fill(colours.lost, x(end), x(end + lost));
    }

    // Whether a place is in a strip.
    function isInStrip(view, y) {
        const place = view.strip && timeline.placeAt(view, y);
        const share = place ? (y - timeline.AXIS_PX - place.top) / view.rowHeight : -1;
        return Boolean(place) && share >= view.shares[view.strip.spans.firstLane].top && share < view.block;
    }

    // The ideal bar at a place: {row, index}. null: none.
    function idealAt(view, x, y) {
        if (!isInStrip(view, y)) {
            return null;
        }
        const place = timeline.placeAt(view, y);
        const there = view.strip.tracks.tracksOfRow[view.strip.spans.rowOf[place.row]];
        const index = timeline.indexAt(view, view.strip, there, place, x, y);
        return index >= 0 ? {row: place.row, index} : null;
    }

    // Indices of the spans of a stage in a row, ordered by start, because each stage has its own lane.
    function ofStage(spans, row, stage) {
        const found = [];
        for (let index = timeline.firstOfRow(spans, row); index < spans.count && spans.row[index] === row; index += 1) {
            if (spans.stage[index] === stage) {
                found.push(index);
            }
        }
        return found;
    }

    // The measured span that corresponds to an ideal one in a row. -1: the timeline does not have all spans of its stage.
    function realOf({spans, strip: {spans: ideal}}, row, index) {
        const stage = ideal.stage[index];
        const [measuredBars, idealBars] = [ofStage(spans, row, stage), ofStage(ideal, ideal.rowOf[row], stage)];
        return measuredBars.length === idealBars.length ? measuredBars[ideal.occurrence[index]] : -1;
    }

    // The rectangle of the ideal bar of a span. null: it is not drawn.
    function idealBoxOf(view, index) {
        if (!view.strip || !(index >= 0)) {
            return null;
        }
        const {spans, strip: {spans: ideal}} = view;
        const row = spans.row[index];
        const bars = ofStage(ideal, ideal.rowOf[row], spans.stage[index]);
        const bar = bars.find((candidate) => realOf(view, row, candidate) === index);
        return bar === undefined ? null : timeline.boxOn(view, view.strip, view.placed.find((place) => place.row === row), bar);
    }

    // Draws a line at the end of the ideal step, and the lost time in each strip.
    function drawIdeal(context, view) {
        if (!view.strip) {
            return;
        }
        const {strip: {spans: {end, lost, firstLane}}, spans, shares, block, rowHeight, colours, height} = view;
        const [from, to] = [timeline.xOf(view, end), timeline.xOf(view, end + lost)];
        context.strokeStyle = colours.accent;
        context.lineWidth = 1;
        timeline.verticalLine(context, view, Math.round(from) + 0.5, timeline.AXIS_PX, height);
        const text = `${timeline.durationText(lost * spans.tickNs)} lost`;
        const [top, tall] = [shares[firstLane].top * rowHeight, (block - shares[firstLane].top) * rowHeight];
        context.font = FONT;
        context.textAlign = "center";
        context.textBaseline = "middle";
        const wide = context.measureText(text).width;
        if (!lost || tall < LEAST_TEXT_PX || wide + 8 > to - from) {
            return;
        }
        context.fillStyle = colours.text;
        for (const place of view.placed) {
            const y = place.top + top + tall / 2;
            if (y > place.from && y < place.to) {
                context.fillText(text, (from + to) / 2, timeline.AXIS_PX + y);
                view.texts.push({
                    x: (from + to - wide) / 2, y: timeline.AXIS_PX + y - LEAST_TEXT_PX / 2, width: wide, height: LEAST_TEXT_PX,
                });
            }
        }
    }

    // The content of the ideal timeline, for the hook.
    function idealOf({spans, strip: {spans: ideal}}) {
        const ns = (ticks) => ticks * spans.tickNs;
        const bar = (index) => ({
            stage: spans.stages.get(ideal.stage[index]).label,
            occurrence: ideal.occurrence[index],
            start: ns(ideal.start[index]),
            duration: ns(ideal.duration[index]),
        });
        return {
            end: ns(ideal.end),
            lost: ns(ideal.lost),
            rows: spans.rows.map((_, row) => Array.from({length: ideal.count}, (_, index) => index)
                .filter((index) => ideal.row[index] === ideal.rowOf[row]).map(bar)),
        };
    }

    Object.assign(timeline, {stripOf, idealLine, isInStrip, idealAt, realOf, idealBoxOf, drawIdeal, idealOf});
})(window.rankscopeTimeline ??= {});
