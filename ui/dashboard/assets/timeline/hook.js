// For tests and other scripts: `element.timeline` of a `.span-timeline` returns what is drawn and where.
//
//   spans({stage, rank})  keys {rank, seq, stage} of the spans of a stage (label) and rank; both are optional
//   where(key)            {x, y, width, height} of the visible part of a span, in pixels of the browser window; null: not visible
//   window()              visible range [first, last], in nanoseconds since the earliest span
//   rows()                visible ranks, from the top
//   steps()               {step, start, end} of each step, in nanoseconds
//   map()                 {left, right, top, bottom} of the frame in the minimap, in pixels of the browser window
//   latest()              key of the member that started last, of the operation of the selected span; null: not known
//   open()                keys of the open spans
//   counters()            names of the tracks of counters
//   selected()            {key, partners: keys}
//   ideal()               {end, lost, rows: the bars {stage, occurrence, start, duration} of each row}, in nanoseconds; null: not shown
//   whereIdeal(key)       like `where`, for the ideal bar of a span
//   view                  the View itself

(function (timeline) {
    function hookOf(view) {
        const named = (index) => ({
            ...timeline.keyOf(view.spans, index),
            stage: view.spans.stages.get(view.spans.stage[index]).label,
        });
        return {
            view,
            spans: ({stage, rank} = {}) => Array.from({length: view.spans.count}, (_, index) => index)
                .filter((index) => rank === undefined || view.spans.rows[view.spans.row[index]].rank === rank)
                .filter((index) => stage === undefined || view.spans.stages.get(view.spans.stage[index]).label === stage)
                .map(named),
            where: (key) => onScreen(view, timeline.spanBox(view, timeline.indexOf(view.spans, key))),
            window: () => view.window.map((tick) => tick * view.spans.tickNs),
            rows: () => [...view.placed].sort((a, b) => a.top - b.top).map(({row}) => view.spans.rows[row].rank),
            steps: () => view.spans.stepRanges.map(({step, start, end}) => ({
                step, start: start * view.spans.tickNs, end: end * view.spans.tickNs,
            })),
            map: () => frameOnScreen(view),
            latest: () => (view.latest >= 0 ? named(view.latest) : null),
            open: () => [...view.spans.open.keys()].map(named),
            counters: () => view.spans.counters?.tracks.map(({name, unit}) => (unit ? `${name}, ${unit}` : name)) ?? [],
            ideal: () => view.strip && timeline.idealOf(view),
            whereIdeal: (key) => onScreen(view, timeline.idealBoxOf(view, timeline.indexOf(view.spans, key))),
            selected: () => ({key: view.chosen.key, partners: view.partners.map(named)}),
        };
    }

    function frameOnScreen(view) {
        const {left, top, bottom} = view.parts.map.getBoundingClientRect();
        const [from, to] = view.window.map((tick) => left + timeline.mapX(view, tick));
        return {left: from, right: to, top, bottom};
    }

    function onScreen({parts, gutter, width}, box) {
        if (!box) {
            return null;
        }
        const corner = parts.canvas.getBoundingClientRect();
        const left = Math.max(box.x, gutter);
        const right = Math.min(box.x + box.width, width);
        return {x: corner.left + left, y: corner.top + box.y, width: right - left, height: box.height};
    }

    Object.assign(timeline, {hookOf});
})(window.rankscopeTimeline ??= {});
