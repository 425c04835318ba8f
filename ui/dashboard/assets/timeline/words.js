// Text about a span, for the tooltip and for screen readers.

(function (timeline) {
    // Lines about a span. The first line is its stage.
    function wordsOf(spans, index) {
        const {label} = spans.stages.get(spans.stage[index]);
        const {rank, name} = spans.rows[spans.row[index]];
        const text = (ticks) => timeline.durationText(ticks * spans.tickNs);
        const microbatch = spans.microbatch[index] >= 0 ? [`microbatch ${spans.microbatch[index]}`] : [];
        const peer = spans.peer[index];
        const open = spans.open.get(index);
        if (open) {
            return [label, `rank ${rank}, step ${spans.stepOf(index)}`, ...(name ? [name] : []), ...open.lines];
        }
        const preposition = label.endsWith("-recv") ? "from" : "to";
        return [
            label,
            `${text(spans.duration[index])} from ${text(spans.start[index])}`,
            [`rank ${rank}`, `step ${spans.stepOf(index)}`, ...microbatch].join(", "),
            ...(name ? [name] : []),
            ...(peer >= 0 ? [`${preposition} rank ${peer}`] : []),
            ...(spans.waited[index] > 0 ? [`waited ${text(spans.waited[index])} for other ranks`] : []),
        ];
    }

    // Lines about a place. `index`: the span there. null: there is nothing.
    function linesAt(view, index, x, y) {
        const ideal = timeline.idealAt(view, x, y);
        const counters = timeline.counterLines(view, x, y);
        if (counters) {
            return counters;
        }
        if (ideal || index >= 0) {
            return ideal ? wordsOfIdeal(view, ideal) : wordsOf(view.spans, index);
        }
        const gap = x >= view.gutter && !timeline.isInStrip(view, y) ? timeline.gapAt(view, x, y) : -1;
        return gap >= 0 ? wordsOfGap(view.spans, gap) : null;
    }

    // Lines about an ideal operation, and about the measured one.
    function wordsOfIdeal(view, {row, index}) {
        const {spans, strip: {spans: ideal}} = view;
        const text = (ticks) => timeline.durationText(ticks * spans.tickNs);
        const microbatch = ideal.microbatch[index] >= 0 ? [`microbatch ${ideal.microbatch[index]}`] : [];
        const real = timeline.realOf(view, row, index);
        return [
            `${spans.stages.get(ideal.stage[index]).label}, ideal`,
            `${text(ideal.duration[index])} from ${text(ideal.start[index])}`,
            [`rank ${spans.rows[row].rank}`, `step ${spans.stepRanges[0].step}`, ...microbatch].join(", "),
            ...(ideal.waited[index] > 0 ? [`${text(ideal.waited[index])} of it waiting for other ranks`] : []),
            ...(real >= 0 ? [`measured: ${text(spans.duration[real])} from ${text(spans.start[real])}`] : []),
        ];
    }

    // Lines about idle time.
    function wordsOfGap(spans, at) {
        return [`idle ${timeline.durationText(spans.gaps.duration[at] * spans.tickNs)}`, spans.causes[spans.gaps.cause[at]]];
    }

    // Shows lines near a place in `root`. Without lines, the tooltip is hidden.
    function showTooltip(tooltip, lines, x, y, root) {
        tooltip.hidden = !lines;
        if (!lines) {
            return;
        }
        const [head, ...rest] = lines;
        tooltip.replaceChildren(
            timeline.make("b", {textContent: head}),
            ...rest.map((line) => timeline.make("div", {textContent: line})),
        );
        const left = x + 14 + tooltip.offsetWidth > root.clientWidth ? x - 14 - tooltip.offsetWidth : x + 14;
        tooltip.style.left = `${Math.max(0, left)}px`;
        tooltip.style.top = `${y + 14}px`;
    }

    Object.assign(timeline, {wordsOf, linesAt, showTooltip});
})(window.rankscopeTimeline ??= {});
