// Texts at arrows: a plate with a text near a place, where it hides as little as possible. Vertical lines have a gap at each text.
//
//   rank 4   |== F0 ==|==== B0 ====|
//                     ,-[last to start: rank 5]      between two rows, because it would hide the text of B0 in its row
//   rank 5   |=== F0 =|=== B0 ===|
//              |r|    ▼

(function (timeline) {
    const FONT = "11px -apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";
    const [PLATE_PX, ASIDE_PX, PADDING_PX, GAP_PX] = [14, 8, 4, 2];
    const HIDDEN_TEXT = 1000;
    const COUNTED_BARS = 20;

    // Draws `text` near `anchor` {x, y}: at one of the heights `tops`, to the right or the left.
    function drawCallout(context, view, anchor, tops, text) {
        context.save();
        context.font = FONT;
        context.textBaseline = "middle";
        context.textAlign = "left";
        const box = calloutBox(view, anchor.x, tops, context.measureText(text).width + 2 * PADDING_PX);
        const middle = box.y + PLATE_PX / 2;
        context.strokeStyle = view.colours.accent;
        context.lineWidth = 1;
        verticalLine(context, view, anchor.x, anchor.y, middle);
        context.beginPath();
        context.moveTo(anchor.x, middle);
        context.lineTo(box.x < anchor.x ? box.x + box.width : box.x, middle);
        context.stroke();
        context.fillStyle = view.colours.paper;
        context.fillRect(box.x, box.y, box.width, box.height);
        context.strokeRect(Math.round(box.x) + 0.5, Math.round(box.y) + 0.5, Math.round(box.width) - 1, PLATE_PX - 1);
        context.fillStyle = view.colours.text;
        context.fillText(text, box.x + PADDING_PX, middle);
        context.restore();
        view.texts.push(box);
    }

    // Draws a vertical line with a gap at each text in its way.
    function verticalLine(context, {texts}, x, fromY, toY) {
        const [first, last] = [Math.min(fromY, toY), Math.max(fromY, toY)];
        const inWay = texts.filter((text) => text.x - GAP_PX < x && x < text.x + text.width + GAP_PX);
        context.beginPath();
        let at = first;
        for (const {y, height} of inWay.sort((a, b) => a.y - b.y)) {
            if (y > at && at < last) {
                context.moveTo(x, at);
                context.lineTo(x, Math.min(y, last));
            }
            at = Math.max(at, y + height);
        }
        if (at < last) {
            context.moveTo(x, at);
            context.lineTo(x, last);
        }
        context.stroke();
    }

    // The place that hides the fewest texts, and among these the fewest bars. If places are equal, the first one.
    function calloutBox(view, x, tops, width) {
        const {gutter, width: right, height} = view;
        const sides = [x + ASIDE_PX, x - ASIDE_PX - width].filter((left) => left >= gutter && left + width <= right);
        const lefts = sides.length ? sides : [Math.max(gutter, right - width)];
        const boxes = tops.flatMap((top) => lefts.map((left) => ({
            x: left,
            y: Math.max(timeline.AXIS_PX, Math.min(top, height - PLATE_PX)),
            width,
            height: PLATE_PX,
        })));
        const textsUnder = (box) => view.texts.filter((other) => overlap(box, other)).length;
        const costs = boxes.map((box) => HIDDEN_TEXT * textsUnder(box) + barsUnder(view, box));
        return boxes[costs.indexOf(Math.min(...costs))];
    }

    // The top of a plate in the middle of the space between a row and the row above it.
    function betweenRows({lanesHeight}, place) {
        return timeline.AXIS_PX + place.top - ((1 - timeline.BLOCK) * lanesHeight + PLATE_PX) / 2;
    }

    function overlap(a, b) {
        return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
    }

    function barsUnder(view, box) {
        const {placed, shares, rowHeight, tracks, strip} = view;
        const ticks = [box.x, box.x + box.width].map((x) => timeline.tickAt(view, x));
        const share = (place, y) => (y - timeline.AXIS_PX - place.top) / rowHeight;
        let number = 0;
        const count = (layer, there, place) => {
            const [from, to] = [share(place, box.y), share(place, box.y + box.height)];
            for (const track of there) {
                const {top, level} = shares[track.lane];
                const begin = top + track.level * level;
                number += begin < to && from < begin + level ? barsBetween(layer, track, ticks) : 0;
            }
        };
        for (const place of placed) {
            count(view, tracks.tracksOfRow[place.row], place);
            if (strip) {
                count(strip, strip.tracks.tracksOfRow[strip.spans.rowOf[place.row]], place);
            }
        }
        return number;
    }

    function barsBetween({spans, tracks}, track, [first, last]) {
        const begin = timeline.firstBeyond(tracks, track, first);
        const end = Math.min(track.last, begin + COUNTED_BARS);
        let at = begin;
        while (at < end && spans.start[tracks.order[at]] < last) {
            at += 1;
        }
        return at - begin;
    }

    Object.assign(timeline, {PLATE_PX, drawCallout, calloutBox, betweenRows, verticalLine});
})(window.rankscopeTimeline ??= {});
