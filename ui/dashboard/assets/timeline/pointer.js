// Wheel and pointer: zoom at a place, drag, select, pin, mark an area, show the tooltip.

(function (timeline) {
    const CLICK_PX = 4;
    const ZOOM_PER_PX = 0.0022;

    // Adds listeners to the canvas. Returns a function that removes them.
    function followPointer(view) {
        const {canvas, scroll, tooltip} = view.parts;
        const listeners = [
            [canvas, "wheel", (event) => wheel(view, event)],
            [canvas, "pointerdown", (event) => press(view, event)],
            [canvas, "pointermove", (event) => move(view, event)],
            [canvas, "pointerup", (event) => release(view, event)],
            [canvas, "pointercancel", () => { view.drag = null; }],
            [canvas, "pointerleave", () => leave(view, tooltip)],
            [canvas, "dblclick", () => timeline.fit(view)],
            [scroll, "scroll", () => view.invalidate()],
        ];
        listeners.forEach(([element, name, listener]) => element.addEventListener(name, listener, {passive: false}));
        return () => listeners.forEach(([element, name, listener]) => element.removeEventListener(name, listener));
    }

    function placeOf(view, event) {
        const box = view.parts.canvas.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
    }

    function wheel(view, event) {
        if (!view.spans) {
            return;
        }
        event.preventDefault();
        const [x, y] = placeOf(view, event);
        const lines = event.deltaMode === 1 ? 16 : 1;
        if (event.shiftKey) {
            view.parts.scroll.scrollTop += (event.deltaY || event.deltaX) * lines;
        } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
            panByPx(view, event.deltaX * lines);
        } else {
            zoomAt(view, Math.max(x, view.gutter), Math.exp(event.deltaY * lines * ZOOM_PER_PX));
        }
        pointAt(view, x, y);
    }

    function zoomAt(view, x, factor) {
        view.moveTo(timeline.zoomAbout(view.window, timeline.tickAt(view, x), factor, view.spans.end));
    }

    function panByPx(view, px) {
        const ticks = (px * (view.window[1] - view.window[0])) / (view.width - view.gutter);
        view.moveTo(timeline.pan(view.window, ticks, view.spans.end));
    }

    function press(view, event) {
        if (!view.spans || event.button !== 0) {
            return;
        }
        const [x, y] = placeOf(view, event);
        view.drag = {x, y, lastX: x, lastY: y, moved: false, marks: event.shiftKey && x >= view.gutter};
        view.parts.canvas.setPointerCapture(event.pointerId);
    }

    function move(view, event) {
        if (!view.spans) {
            return;
        }
        const [x, y] = placeOf(view, event);
        view.pointer = [x, y];
        if (!view.drag) {
            pointAt(view, x, y);
            return;
        }
        view.drag.moved ||= Math.hypot(x - view.drag.x, y - view.drag.y) >= CLICK_PX;
        if (!view.drag.moved) {
            return;
        }
        timeline.showTooltip(view.parts.tooltip, null);
        if (view.drag.marks) {
            view.area = areaBetween(view, [view.drag.x, view.drag.y], [x, y]);
            view.invalidate();
        } else {
            panByPx(view, view.drag.lastX - x);
            view.parts.scroll.scrollTop += view.drag.lastY - y;
        }
        Object.assign(view.drag, {lastX: x, lastY: y});
    }

    function release(view, event) {
        const {drag} = view;
        view.drag = null;
        if (!drag) {
            return;
        }
        const [x, y] = placeOf(view, event);
        if (drag.marks && drag.moved) {
            view.chosen.mark(areaBetween(view, [drag.x, drag.y], [x, y]));
        } else if (!drag.moved) {
            view.parts.scroll.focus({preventScroll: true});
            click(view, x, y);
        }
    }

    function click(view, x, y) {
        const place = timeline.placeAt(view, y);
        if (place && x < view.gutter) {
            view.chosen.togglePin(view.spans.rows[place.row].rank);
            return;
        }
        const [index, ideal] = [timeline.spanAt(view, x, y), timeline.idealAt(view, x, y)];
        const chosen = ideal ? timeline.realOf(view, ideal.row, ideal.index) : index;
        if (chosen >= 0) {
            view.choose(chosen, 0);
        }
    }

    // The area of complete rows between two places. null: it has no length.
    function areaBetween(view, [x0, y0], [x1, y1]) {
        const clampY = (y) => Math.min(Math.max(y, timeline.AXIS_PX), view.height - 1);
        const ranks = [y0, y1].map((y) => timeline.placeAt(view, clampY(y))).map((place) => place && view.spans.rows[place.row].rank);
        const {end, tickNs} = view.spans;
        const ticks = [x0, x1].map((x) => Math.min(Math.max(timeline.tickAt(view, x), 0), end)).sort((a, b) => a - b);
        const [first, last] = [Math.floor(ticks[0] * tickNs), Math.ceil(ticks[1] * tickNs)];
        return last > first && ranks.every((rank) => rank !== undefined) ? [first, last, ...ranks] : null;
    }

    function pointAt(view, x, y) {
        const index = timeline.spanAt(view, x, y);
        const lines = timeline.linesAt(view, index, x, y);
        const {canvas, tooltip, scroll} = view.parts;
        timeline.showTooltip(tooltip, lines, x, y + scroll.offsetTop, view.root);
        canvas.style.cursor = index >= 0 || x < view.gutter ? "pointer" : "grab";
        if (index !== view.hovered) {
            view.hovered = index;
            view.invalidate();
            view.chosen.hover(index < 0 ? null : timeline.keyOf(view.spans, index));
        }
    }

    function leave(view, tooltip) {
        view.pointer = null;
        timeline.showTooltip(tooltip, null);
        if (view.hovered >= 0) {
            view.hovered = -1;
            view.chosen.hover(null);
            view.invalidate();
        }
    }

    Object.assign(timeline, {followPointer, zoomAt, panByPx});
})(window.rankscopeTimeline ??= {});
