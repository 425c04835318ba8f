// The steps below the times of the axis, and their boundaries in the rows.
//
//   time in ms     0        100       200       300
//   steps          |--- step 20 ---||--- step 21 ---|

(function (timeline) {
    const FONT = "11px -apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";
    const TICK_PX = 5;

    // `top`: where the times of the axis end.
    function drawSteps(context, view, top) {
        const {spans, window, gutter, width, height, colours} = view;
        const y = Math.round((top + timeline.AXIS_PX) / 2) + 0.5;
        const visible = spans.stepRanges.filter(({start, end}) => end > window[0] && start < window[1]);
        context.font = FONT;
        context.textBaseline = "middle";
        context.fillStyle = colours.dim;
        context.fillText(spans.stepRanges.length > 1 ? "steps" : "step", 4, y);
        context.save();
        context.beginPath();
        context.rect(gutter, top, width - gutter, height - top);
        context.clip();
        context.lineWidth = 1;
        for (const {step, start, end} of visible) {
            const [from, to] = [timeline.xOf(view, start), timeline.xOf(view, end)];
            bracket(context, from, to, y, colours);
            name(context, Math.max(from, gutter), Math.min(to, width), y, String(step), colours);
            if (spans.stepRanges.length > 1) {
                context.fillStyle = colours.dim;
                context.fillRect(Math.round(from), timeline.AXIS_PX, 1, height);
            }
        }
        context.restore();
    }

    function bracket(context, from, to, y, colours) {
        context.strokeStyle = colours.dim;
        context.beginPath();
        context.moveTo(from, y);
        context.lineTo(to, y);
        for (const x of [from + 0.5, to - 0.5]) {
            context.moveTo(x, y - TICK_PX);
            context.lineTo(x, y + TICK_PX);
        }
        context.stroke();
    }

    // The number of the step in the middle of its visible part, if it fits.
    function name(context, from, to, y, text, colours) {
        const room = context.measureText(text).width + 8;
        if (to - from < room) {
            return;
        }
        const middle = (from + to) / 2;
        context.fillStyle = colours.paper;
        context.fillRect(middle - room / 2, y - 7, room, 14);
        context.fillStyle = colours.text;
        context.textAlign = "center";
        context.fillText(text, middle, y);
        context.textAlign = "left";
    }

    Object.assign(timeline, {drawSteps});
})(window.rankscopeTimeline ??= {});
