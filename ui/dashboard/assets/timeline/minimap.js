// The minimap: the whole picture in small, with a frame around the visible window. A drag moves the frame or one of its sides.
//
//   |.:::..|==== window ====|..:::..|      outside the window it is paler

(function (timeline) {
    const MAP_PX = 40;
    const EDGE_PX = 6;
    const LEAST_ROW_PX = 2;
    const OUTSIDE = 0.6;

    function drawMap(view) {
        const {parts: {map}, mapContext: context, ratio, gutter, width, window, spans, colours} = view;
        view.mapImage ??= mapImage(view);
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.fillStyle = colours.paper;
        context.fillRect(0, 0, map.width, map.height);
        context.putImageData(view.mapImage, Math.round(gutter * ratio), 0);
        context.scale(ratio, ratio);
        const [from, to] = window.map((tick) => mapX(view, tick));
        context.fillStyle = colours.paper;
        context.globalAlpha = OUTSIDE;
        context.fillRect(gutter, 0, from - gutter, MAP_PX);
        context.fillRect(to, 0, width - to, MAP_PX);
        context.globalAlpha = 1;
        drawBoundaries(context, view);
        context.strokeStyle = context.fillStyle = colours.accent;
        context.lineWidth = 2;
        context.strokeRect(from + 1, 1, Math.max(to - from - 2, 1), MAP_PX - 2);
        if (window[0] > 0 || window[1] < spans.end) {
            [from, to].forEach((x) => context.fillRect(x - 2, MAP_PX / 4, 4, MAP_PX / 2));
        }
    }

    function drawBoundaries(context, view) {
        const {spans: {stepRanges}, colours} = view;
        context.fillStyle = colours.dim;
        stepRanges.slice(1).forEach(({start}) => context.fillRect(Math.round(mapX(view, start)), 0, 1, MAP_PX));
    }

    // Rows from the top, each as one band: its first lane that has spans. If there are too many rows, some are left out.
    function mapImage({spans, tracks, displayed, ratio, gutter, width, colours}) {
        const image = new ImageData(Math.max(1, Math.round((width - gutter) * ratio)), Math.round(MAP_PX * ratio));
        const pixels = new Uint32Array(image.data.buffer);
        const line = new Uint32Array(image.width);
        const number = Math.min(displayed.rows.length, Math.floor(image.height / LEAST_ROW_PX));
        pixels.fill(colours.body);
        for (let band = 0; band < number; band += 1) {
            const row = displayed.rows[Math.floor((band * displayed.rows.length) / number)];
            const [from, to] = [band, band + 1].map((at) => Math.round((at * image.height) / number));
            timeline.paleLine(line, spans, row, [0, spans.end], colours);
            const lane = tracks.tracksOfRow[row][0]?.lane;
            tracks.tracksOfRow[row].filter((track) => track.lane === lane)
                .forEach((track) => timeline.composeTrack(line, spans, tracks, track, [0, spans.end], colours, []));
            timeline.copyDown(pixels, line, from, Math.max(from + 1, number > image.height / 4 ? to : to - 1));
        }
        return image;
    }

    function mapX(view, tick) {
        return view.gutter + (tick / view.spans.end) * (view.width - view.gutter);
    }

    function mapTick(view, x) {
        return ((x - view.gutter) / (view.width - view.gutter)) * view.spans.end;
    }

    // Adds listeners to the minimap. Returns a function that removes them.
    function followMap(view) {
        const {map} = view.parts;
        const at = (event) => event.clientX - map.getBoundingClientRect().left;
        let drag = null;
        const listeners = [
            ["pointerdown", (event) => {
                if (view.spans && event.button === 0) {
                    drag = beginDrag(view, at(event));
                    map.setPointerCapture(event.pointerId);
                }
            }],
            ["pointermove", (event) => {
                if (drag) {
                    moveDrag(view, drag, at(event));
                } else if (view.spans) {
                    map.style.cursor = sideAt(view, at(event)) ? "ew-resize" : "grab";
                }
            }],
            ["pointerup", () => { drag = null; }],
            ["pointercancel", () => { drag = null; }],
            ["dblclick", () => view.spans && view.moveTo([0, view.spans.end])],
            ["wheel", (event) => {
                if (view.spans) {
                    event.preventDefault();
                    view.moveTo(timeline.zoomAbout(view.window, mapTick(view, at(event)), wheelFactor(event), view.spans.end));
                }
            }],
        ];
        listeners.forEach(([name, listener]) => map.addEventListener(name, listener, {passive: false}));
        return () => listeners.forEach(([name, listener]) => map.removeEventListener(name, listener));
    }

    function wheelFactor(event) {
        return Math.exp(event.deltaY * (event.deltaMode === 1 ? 16 : 1) * 0.0022);
    }

    // The side of the frame at a place: "first", "last", or null.
    function sideAt(view, x) {
        const [from, to] = view.window.map((tick) => mapX(view, tick));
        if (Math.abs(x - to) <= EDGE_PX) {
            return "last";
        }
        return Math.abs(x - from) <= EDGE_PX ? "first" : null;
    }

    // Outside the frame, the window first moves to the pointer.
    function beginDrag(view, x) {
        const [tick, side] = [mapTick(view, x), sideAt(view, x)];
        const [first, last] = view.window;
        if (!side && (tick < first || tick > last)) {
            view.moveTo(timeline.pan(view.window, tick - (first + last) / 2, view.spans.end));
        }
        return {side, x, window: [...view.window]};
    }

    function moveDrag(view, {side, x, window: [first, last]}, now) {
        const {end} = view.spans;
        const by = mapTick(view, now) - mapTick(view, x);
        if (!side) {
            view.moveTo(timeline.pan([first, last], by, end));
            return;
        }
        const least = Math.min(timeline.LEAST_TICKS, end);
        const sides = side === "first" ? [Math.min(first + by, last - least), last] : [first, Math.max(last + by, first + least)];
        view.moveTo([Math.max(0, sides[0]), Math.min(end, sides[1])]);
    }

    Object.assign(timeline, {MAP_PX, drawMap, followMap, mapX});
})(window.rankscopeTimeline ??= {});
