// Open spans: bars without an end. Diagonal stripes cover them, and an arrow on the right shows that they continue.
//
//   |== F0 ==|  |/ / tp-all-gather for 34 min / / >

(function (timeline) {
    const [STRIPE_PX, ARROW_PX] = [9, 7];
    const [LEAST_PLATE_PX, MOST_PLATE_PX] = [12, 14];

    function drawOpen(context, view) {
        const {spans, colours} = view;
        for (const index of spans.open.keys()) {
            const box = timeline.spanBox(view, index);
            if (box) {
                stripes(context, box, colours.paper);
                outlineOpen(context, box, colours.text);
            }
        }
    }

    function stripes(context, {x, y, width, height}, colour) {
        context.save();
        context.beginPath();
        context.rect(x, y, width, height);
        context.clip();
        context.strokeStyle = colour;
        context.globalAlpha = 0.4;
        context.lineWidth = 2.5;
        context.beginPath();
        const first = Math.max(x, 0) - height - ((Math.max(x, 0) - x) % STRIPE_PX);
        for (let at = first; at < Math.min(x + width, context.canvas.width); at += STRIPE_PX) {
            context.moveTo(at, y + height);
            context.lineTo(at + height, y);
        }
        context.stroke();
        context.restore();
    }

    // A border without a right side, and an arrow head there.
    function outlineOpen(context, {x, y, width, height}, colour) {
        const right = x + Math.max(width, 2);
        context.strokeStyle = context.fillStyle = colour;
        context.lineWidth = 1;
        context.beginPath();
        context.moveTo(right, y + 0.5);
        context.lineTo(x + 0.5, y + 0.5);
        context.lineTo(x + 0.5, y + height - 0.5);
        context.lineTo(right, y + height - 0.5);
        context.stroke();
        if (width > 2 * ARROW_PX) {
            const middle = y + height / 2;
            context.beginPath();
            context.moveTo(right - 1, middle);
            context.lineTo(right - ARROW_PX, middle - ARROW_PX / 2);
            context.lineTo(right - ARROW_PX, middle + ARROW_PX / 2);
            context.fill();
        }
    }

    // The ground of a text on stripes. It is as high as the letters, also on a thinner bar.
    function plate(context, x, y, width, height, colour) {
        context.fillStyle = colour;
        context.globalAlpha = 0.85;
        const tall = Math.min(Math.max(height - 2, LEAST_PLATE_PX), MOST_PLATE_PX);
        context.fillRect(x - width / 2 - 3, y - tall / 2, width + 6, tall);
        context.globalAlpha = 1;
    }

    Object.assign(timeline, {OPEN_ARROW_PX: ARROW_PX + 1, drawOpen, plate});
})(window.rankscopeTimeline ??= {});
