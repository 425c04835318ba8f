// For tests and for other scripts: `element.timeline` of a `.span-timeline` tells what is drawn and where.
//
//   spans({stage, rank})  keys {rank, seq, stage} of the spans of a stage (by label) and rank, as far as they are given
//   where(key)            {x, y, width, height} of what is drawn of a span, in pixels of the browser's window; null: nothing
//   window()              [first, last] on the screen, in nanoseconds from the earliest span
//   rows()                ranks on the screen, from the top
//   selected()            {key, partners: keys}
//   ideal()               {end, lost, rows: of each the bars {stage, occurrence, start, duration}}, in nanoseconds; null: not shown
//   whereIdeal(key)       `where` of the ideal bar that stands for a span
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
            ideal: () => view.strip && timeline.idealOf(view),
            whereIdeal: (key) => onScreen(view, timeline.idealBoxOf(view, timeline.indexOf(view.spans, key))),
            selected: () => ({key: view.chosen.key, partners: view.partners.map(named)}),
        };
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
