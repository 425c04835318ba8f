// Arrows from the selected span to the other members of its operation that are visible.
//
//   transfer     |s|                      from the begin of the send to the end of the receive
//                   `--->|r---|
//
//   open         from a rank that waits to the rank that it waits for
//
//   collective   |....^== rank 0 =|       from the member that started last to those that waited for it, at the time of its start
//                |....|== rank 1 =|
//                     ▼== rank 2 =|       last to start
//
//                |== rank 0 =|           lines without heads, if it is not known which member started last
//                |== rank 1 =|

(function (timeline) {
    const MARK_PX = 6;

    // The member that started last: all others waited for it. -1: not known, a transfer, or an open span.
    function latestStarter(spans, selected, partners) {
        if (selected < 0 || !partners.length || spans.open.has(selected) || isTransfer(spans, selected)) {
            return -1;
        }
        const late = [selected, ...partners].filter((index) => spans.waited[index] === 0);
        return late.length === 1 ? late[0] : -1;
    }

    function isTransfer(spans, index) {
        const {label} = spans.stages.get(spans.stage[index]);
        return label.endsWith("-send") || label.endsWith("-recv");
    }

    function drawArrows(context, view) {
        const {spans, selected, partners, latest} = view;
        if (!(selected >= 0)) {
            return;
        }
        context.strokeStyle = context.fillStyle = view.colours.text;
        context.lineWidth = 1.5;
        partners.forEach((partner) => timeline.outline(context, timeline.spanBox(view, partner), 1.5, view.colours.text));
        if (latest >= 0) {
            drawRelease(context, view, latest, [selected, ...partners].filter((member) => member !== latest));
            return;
        }
        const from = timeline.spanBox(view, selected);
        if (from && spans.open.get(selected)?.waits.length) {
            drawWaits(context, view, from);
            return;
        }
        const boxes = partners.map((partner) => timeline.spanBox(view, partner)).filter((box) => from && box);
        const transfer = isTransfer(spans, selected);
        for (const to of boxes) {
            const receives = spans.stages.get(spans.stage[selected]).label.endsWith("-recv");
            (transfer ? arrow : line)(context, view, ...ends(...(receives ? [to, from] : [from, to]), transfer));
        }
    }

    // A line at the start of the latest member, with an arrow head at each member that waited for it, and a mark.
    function drawRelease(context, view, latest, waiting) {
        const from = timeline.spanBox(view, latest);
        const x = timeline.xOf(view, view.spans.start[latest]);
        if (!from || x < view.gutter || x > view.width) {
            return;
        }
        for (const to of waiting.map((member) => timeline.spanBox(view, member)).filter(Boolean)) {
            const down = to.y > from.y;
            arrow(context, view, x, down ? from.y + from.height : from.y, x, down ? to.y : to.y + to.height);
        }
        context.fillStyle = view.colours.accent;
        context.beginPath();
        context.moveTo(x, from.y);
        context.lineTo(x - MARK_PX, from.y - MARK_PX);
        context.lineTo(x + MARK_PX, from.y - MARK_PX);
        context.fill();
        const {rank} = view.spans.rows[view.spans.row[latest]];
        const place = view.placed.find(({row}) => row === view.spans.row[latest]);
        const tops = [from.y - timeline.PLATE_PX, timeline.betweenRows(view, place), from.y + from.height + 2];
        timeline.drawCallout(context, view, {x, y: from.y - MARK_PX}, tops, `last to start: rank ${rank}`);
    }

    // An arrow from an open span to each open span that it waits for, in the middle of the part that both cover.
    function drawWaits(context, view, from) {
        for (const partner of view.partners) {
            const to = timeline.spanBox(view, partner);
            if (to) {
                const x = (Math.max(from.x, to.x, view.gutter) + Math.min(from.x + from.width, to.x + to.width, view.width)) / 2;
                const down = to.y > from.y;
                arrow(context, view, x, down ? from.y + from.height : from.y, x, down ? to.y : to.y + to.height);
                const {rank} = view.spans.rows[view.spans.row[partner]];
                const middle = (from.y + from.height / 2 + to.y + to.height / 2) / 2;
                const lower = view.placed.find(({row}) => row === view.spans.row[down ? partner : view.selected]);
                const tops = [middle - timeline.PLATE_PX / 2, timeline.betweenRows(view, lower)];
                timeline.drawCallout(context, view, {x, y: middle}, tops, `waits for rank ${rank}`);
            }
        }
    }

    // Ends of an arrow. Transfer: from the begin of the send to the end of the receive. Collective: from end to end.
    function ends(tail, head, transfer) {
        const down = head.y > tail.y;
        const begin = [transfer ? tail.x : tail.x + tail.width, down ? tail.y + tail.height : tail.y];
        return [...begin, head.x + head.width, down ? head.y : head.y + head.height];
    }

    function line(context, view, fromX, fromY, toX, toY) {
        if (fromX === toX) {
            timeline.verticalLine(context, view, fromX, fromY, toY);
            return;
        }
        const bend = (toY - fromY) / 2;
        context.beginPath();
        context.moveTo(fromX, fromY);
        context.bezierCurveTo(fromX, fromY + bend, toX, toY - bend, toX, toY);
        context.stroke();
    }

    function arrow(context, view, fromX, fromY, toX, toY) {
        line(context, view, fromX, fromY, toX, toY);
        const direction = Math.sign(toY - fromY) || 1;
        context.beginPath();
        context.moveTo(toX, toY);
        context.lineTo(toX - 4, toY - 7 * direction);
        context.lineTo(toX + 4, toY - 7 * direction);
        context.fill();
    }

    Object.assign(timeline, {latestStarter, drawArrows});
})(window.rankscopeTimeline ??= {});
