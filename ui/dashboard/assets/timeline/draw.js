// Draws over the image of the rows: axis, names, text on bars, the selected span, its partners, the marked area.

(function (timeline) {
    const [AXIS_PX, TIMES_PX] = [42, 24];
    const FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";
    const TALL_ROW_PX = 46;
    const NAMED_LANES_PX = 78;
    const [LEAST_TEXT_PX, TEXT_PX, LANE_NAME_PX] = [9, 12, 12];
    const NARROW_PX = 640;
    const [NARROW_NAMES_PX, LEAST_NAMES_PX, MOST_NAMES_PX, GAP_PX] = [92, 172, 264, 8];
    const MAX_LABELS = 600;

    // Draws a complete frame. `view`: see view.js.
    function drawFrame(context, view) {
        const {ratio, width, height, gutter} = view;
        const plot = {width: Math.max(1, Math.round((width - gutter) * ratio)), height: Math.round((height - AXIS_PX) * ratio)};
        view.frame = timeline.imageOf(view.frame, plot.width, Math.max(1, plot.height));
        const labels = timeline.paintRows(view.frame, view);
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.fillStyle = view.colours.paper;
        context.fillRect(0, 0, context.canvas.width, context.canvas.height);
        context.putImageData(view.frame.image, Math.round(gutter * ratio), Math.round(AXIS_PX * ratio));
        context.scale(ratio, ratio);
        drawAxis(context, view);
        inPlot(context, view, () => {
            timeline.drawOpen(context, view);
            drawArea(context, view);
        });
        timeline.drawCounters(context, view);
        drawLabels(context, view, labels);
        drawNames(context, view);
        inPlot(context, view, () => {
            timeline.drawIdeal(context, view);
            timeline.drawArrows(context, view);
            outline(context, timeline.spanBox(view, view.hovered), 1.5, view.colours.text);
            outline(context, timeline.spanBox(view, view.selected), 3, view.colours.accent);
            outline(context, timeline.idealBoxOf(view, view.selected), 2, view.colours.accent);
        });
    }

    function inPlot(context, {gutter, width, height}, draw) {
        context.save();
        context.beginPath();
        context.rect(gutter, AXIS_PX, width - gutter, height - AXIS_PX);
        context.clip();
        draw();
        context.restore();
    }

    function drawAxis(context, view) {
        const {spans, window, gutter, width, height, colours} = view;
        const [first, last] = window.map((tick) => tick * spans.tickNs);
        const {values, name, text} = timeline.axisTicks(first, last, width - gutter);
        const x = (ns) => gutter + ((ns - first) / (last - first)) * (width - gutter);
        context.font = `11px ${FONT}`;
        context.textBaseline = "middle";
        context.textAlign = "center";
        for (const ns of values) {
            context.fillStyle = colours.faint;
            context.fillRect(Math.round(x(ns)), TIMES_PX - 5, 1, height - TIMES_PX + 5);
            context.fillStyle = colours.dim;
            context.fillText(text(ns), Math.min(x(ns), width - 18), TIMES_PX / 2);
        }
        context.textAlign = "left";
        context.fillText(`time in ${name}`, 4, TIMES_PX / 2);
        timeline.drawSteps(context, view, TIMES_PX);
    }

    // Draws the longest name that fits into each bar. `view.texts`: their places.
    function drawLabels(context, view, labels) {
        const {ratio, gutter, colours} = view;
        context.font = `11px ${FONT}`;
        context.textAlign = "center";
        context.textBaseline = "middle";
        view.texts = [];
        for (const {spans, index, from, to, top, height} of labels.slice(0, MAX_LABELS)) {
            const isOpen = spans === view.spans && spans.open.has(index);
            const arrowPx = isOpen ? timeline.OPEN_ARROW_PX : 0;
            const room = (to - from) / ratio - 6 - arrowPx;
            const text = height / ratio >= LEAST_TEXT_PX && fittingName(context, view, spans, index, room);
            if (text) {
                const [x, y] = [gutter + ((from + to) / ratio - arrowPx) / 2, AXIS_PX + (top + height / 2) / ratio + 0.5];
                const wide = textWidth(context, view.widths, text);
                view.texts.push({x: x - wide / 2, y: y - TEXT_PX / 2, width: wide, height: TEXT_PX});
                if (isOpen) {
                    timeline.plate(context, x, y, wide, height / ratio, colours.paper);
                }
                context.fillStyle = isOpen ? colours.text : timeline.inkOf(spans, index, colours.inks);
                context.fillText(text, x, y);
            }
        }
    }

    function fittingName(context, view, spans, index, room) {
        const {label, short} = view.spans.stages.get(spans.stage[index]);
        const microbatch = spans.microbatch[index];
        const number = microbatch >= 0 ? String(microbatch) : "";
        const open = view.spans.open.get(spans === view.spans ? index : -1);
        const inOperation = open?.operation ? [`${label} ${open.lasts}, in ${open.operation}`] : [];
        const lasting = open ? [...inOperation, `${label} ${open.lasts}`, open.lasts] : [];
        return [...lasting, `${label} ${number}`.trim(), short && short + number, label, short]
            .find((name) => name && textWidth(context, view.widths, name) <= room);
    }

    function textWidth(context, widths, text) {
        let width = widths.get(text);
        if (width === undefined) {
            width = context.measureText(text).width;
            widths.set(text, width);
        }
        return width;
    }

    // Width of the names beside the rows, and of the names of lanes in it. The longest name of a row fits beside those of lanes.
    function namesWidth(context, {rows, lanes}, width) {
        const widest = (names, font) => {
            context.font = `${font} ${FONT}`;
            return names.reduce((most, {name}) => Math.max(most, context.measureText(name).width), 0);
        };
        const lanesPx = widest(lanes, "10px") + 2 * GAP_PX;
        if (width < NARROW_PX) {
            return {gutter: NARROW_NAMES_PX, lanesPx};
        }
        const wanted = Math.ceil(4 + widest(rows, "11px") + lanesPx);
        return {gutter: Math.min(MOST_NAMES_PX, Math.max(LEAST_NAMES_PX, wanted)), lanesPx};
    }

    function drawNames(context, view) {
        const {placed, spans, gutter, lanesPx, lanesHeight, block, rowHeight, colours, suspects, pinned} = view;
        const room = lanesHeight < NAMED_LANES_PX ? gutter - 4 : gutter - lanesPx;
        context.textBaseline = "middle";
        for (const place of placed) {
            const {rank, name} = spans.rows[place.row];
            const tall = lanesHeight >= TALL_ROW_PX;
            const middle = AXIS_PX + place.top + (rowHeight * block) / 2;
            context.save();
            context.beginPath();
            context.rect(0, AXIS_PX + place.from, gutter - 4, Math.max(0, place.to - place.from));
            context.clip();
            context.fillStyle = colours.text;
            context.textAlign = "left";
            context.font = `${suspects.has(rank) ? "700 " : ""}12px ${FONT}`;
            const head = `${pinned.includes(rank) ? "⚲ " : ""}${suspects.has(rank) ? "▶ " : ""}rank ${rank}`;
            const headline = suspects.has(rank) ? `${head} suspect` : head;
            context.fillText(headline, 4, tall ? middle - 8 : middle);
            if (!tall) {
                // The host is the last part of a name. In a low row there is room for one line only.
                const left = 4 + context.measureText(headline).width + GAP_PX;
                context.fillStyle = colours.dim;
                context.font = `11px ${FONT}`;
                context.fillText(name.split(" · ").at(-1), left, middle);
            }
            drawLaneNames(context, view, place);
            if (tall) {
                context.beginPath();
                context.rect(0, AXIS_PX, room, view.height);
                context.clip();
                context.textAlign = "left";
                context.fillStyle = colours.dim;
                context.font = `11px ${FONT}`;
                context.fillText(name, 4, middle + 8);
            }
            context.restore();
        }
        drawPinEdge(context, view);
    }

    function drawLaneNames(context, view, {top}) {
        const {shares, spans, lanesHeight, rowHeight, gutter, colours} = view;
        if (lanesHeight < NAMED_LANES_PX) {
            return;
        }
        context.font = `10px ${FONT}`;
        context.textAlign = "right";
        context.fillStyle = colours.dim;
        const lanes = shares.map(({top: from, height}, lane) => ({
            name: spans.lanes[lane].name, middle: (from + height / 2) * rowHeight, height: height * rowHeight,
        }));
        for (const {name, y} of placedNames(lanes, view.block * rowHeight)) {
            context.fillText(name, gutter - GAP_PX, AXIS_PX + top + y);
        }
    }

    // Heights of lane names in a row: in the middle of the lane, or beside it where names would touch. If there is not enough
    // room for all, the thinnest lanes have no name.
    function placedNames(lanes, roomPx) {
        const most = Math.max(1, Math.floor(roomPx / LANE_NAME_PX));
        const widest = lanes.filter(({name, height}) => name && height > 0).sort((a, b) => b.height - a.height).slice(0, most);
        const named = widest.sort((a, b) => a.middle - b.middle).map(({name, middle}) => ({name, y: middle}));
        named.forEach((lane, at) => { lane.y = Math.max(lane.y, at ? named[at - 1].y + LANE_NAME_PX : LANE_NAME_PX / 2); });
        let below = roomPx - LANE_NAME_PX / 2;
        for (const lane of [...named].reverse()) {
            lane.y = Math.min(lane.y, below);
            below = lane.y - LANE_NAME_PX;
        }
        return named;
    }

    function drawPinEdge(context, {displayed, rowHeight, width, height, colours}) {
        const edge = AXIS_PX + displayed.numPinned * rowHeight;
        if (displayed.numPinned && edge < height) {
            context.fillStyle = colours.accent;
            context.fillRect(0, edge - 2, width, 1.5);
        }
    }

    function drawArea(context, view) {
        const box = view.area && timeline.areaBox(view, view.area);
        if (!box) {
            return;
        }
        context.fillStyle = view.colours.accent;
        context.globalAlpha = 0.16;
        context.fillRect(box.x, box.y, box.width, box.height);
        context.globalAlpha = 1;
        context.lineWidth = 1.5;
        context.strokeStyle = view.colours.accent;
        context.strokeRect(box.x, box.y, box.width, box.height);
    }

    function outline(context, box, width, colour) {
        if (box) {
            context.lineWidth = width;
            context.strokeStyle = colour;
            context.strokeRect(box.x, box.y, Math.max(box.width, 2), box.height);
        }
    }

    Object.assign(timeline, {AXIS_PX, drawFrame, fittingName, placedNames, namesWidth, outline});
})(window.rankscopeTimeline ??= {});
