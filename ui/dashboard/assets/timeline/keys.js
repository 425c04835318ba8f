// Keyboard shortcuts, similar to Perfetto's. They work on the whole page, except in text fields.

(function (timeline) {
    const ZOOM = 1.35;
    const PAN_SHARE = 0.12;

    function followKeys(view) {
        const {search} = view.parts;
        const listeners = [
            [document, "keydown", (event) => key(view, event)],
            [search, "input", () => view.find(search.value)],
            [search, "keydown", (event) => searchKey(view, event)],
        ];
        listeners.forEach(([element, name, listener]) => element.addEventListener(name, listener));
        return () => listeners.forEach(([element, name, listener]) => element.removeEventListener(name, listener));
    }

    const ACTIONS = {
        w: (view) => timeline.zoomAt(view, pointerX(view), 1 / ZOOM),
        s: (view) => timeline.zoomAt(view, pointerX(view), ZOOM),
        a: (view) => timeline.panByPx(view, -PAN_SHARE * (view.width - view.gutter)),
        d: (view) => timeline.panByPx(view, PAN_SHARE * (view.width - view.gutter)),
        f: (view) => fit(view),
        0: (view) => view.moveTo([0, view.spans.end]),
        p: (view) => pin(view),
        ".": (view) => along(view, 1),
        ",": (view) => along(view, -1),
        "/": (view) => openSearch(view),
        "?": (view) => toggleHelp(view),
        Escape: (view) => clear(view),
    };
    const CANVAS_ACTIONS = {ArrowDown: (view) => across(view, 1), ArrowUp: (view) => across(view, -1)};

    function key(view, event) {
        const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
        if (!view.spans || typing || event.ctrlKey || event.metaKey || event.altKey) {
            return;
        }
        const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
        const action = ACTIONS[name] ?? (document.activeElement === view.parts.scroll ? CANVAS_ACTIONS[name] : undefined);
        if (action) {
            event.preventDefault();
            action(view);
        }
    }

    function pointerX(view) {
        return view.pointer && view.pointer[0] > view.gutter ? view.pointer[0] : (view.gutter + view.width) / 2;
    }

    function fit(view) {
        const {spans, selected, area} = view;
        if (selected >= 0) {
            view.moveTo(timeline.around(spans.start[selected], spans.start[selected] + spans.duration[selected], spans.end));
            view.bringIntoView(selected);
        } else if (area) {
            view.moveTo(timeline.clamp([area[0] / spans.tickNs, area[1] / spans.tickNs], spans.end));
        } else {
            view.moveTo([0, spans.end]);
        }
    }

    // Selects the next or previous span of the lane. Without a selection: the first visible span.
    function along(view, by) {
        if (view.selected < 0) {
            chooseFirst(view, (index) => view.spans.start[index] >= view.window[0]);
            return;
        }
        const other = timeline.neighbour(view.spans, view.selected, by);
        if (other >= 0) {
            view.choose(other);
        }
    }

    function chooseFirst(view, fits) {
        const row = view.displayed.rows[view.displayed.numPinned + Math.floor(view.scrollTop / view.rowHeight)];
        const {spans} = view;
        for (let index = 0; index < spans.count; index += 1) {
            if (spans.row[index] === row && fits(index)) {
                view.choose(index);
                return;
            }
        }
    }

    // Selects the span in the track above or below that is nearest in time.
    function across(view, by) {
        const {spans, tracks, displayed, selected} = view;
        if (selected < 0) {
            along(view, 1);
            return;
        }
        const inOrder = displayed.rows.flatMap((row) => tracks.tracksOfRow[row]);
        const here = inOrder.findIndex(({first, last}) => tracks.order.subarray(first, last).includes(selected));
        const track = inOrder[here + by];
        if (track) {
            const middle = spans.start[selected] + spans.duration[selected] / 2;
            const at = Math.min(timeline.firstBeyond(tracks, track, middle), track.last - 1);
            view.choose(tracks.order[at]);
        }
    }

    function pin(view) {
        const place = view.pointer && timeline.placeAt(view, view.pointer[1]);
        const row = place?.row ?? (view.selected >= 0 ? view.spans.row[view.selected] : undefined);
        if (row !== undefined) {
            view.chosen.togglePin(view.spans.rows[row].rank);
        }
    }

    function openSearch({parts}) {
        parts.search.hidden = false;
        parts.search.focus();
        parts.search.select();
    }

    function searchKey(view, event) {
        if (event.key === "Escape") {
            view.parts.search.blur();
            view.find("");
            view.parts.scroll.focus({preventScroll: true});
        } else if (event.key === "Enter" && view.chosen.found?.size) {
            chooseFound(view, event.shiftKey ? -1 : 1);
        } else {
            return;
        }
        event.stopPropagation();
    }

    // Selects the next span of the search, in the order of rows, lanes and time. After the last span, the first follows.
    function chooseFound(view, by) {
        const {spans, chosen, selected} = view;
        for (let tried = 1; tried <= spans.count; tried += 1) {
            const index = (selected + by * tried + 2 * spans.count) % spans.count;
            if (chosen.found.has(spans.stage[index])) {
                view.choose(index);
                return;
            }
        }
    }

    function toggleHelp({parts}) {
        parts.help.hidden = !parts.help.hidden;
        if (!parts.help.hidden) {
            parts.help.querySelector("button").focus();
        }
    }

    function clear(view) {
        const {parts, chosen} = view;
        if (!parts.help.hidden) {
            parts.help.hidden = true;
            parts.scroll.focus({preventScroll: true});
            return;
        }
        view.find("");
        if (chosen.area) {
            chosen.mark(null);
        }
        if (chosen.key) {
            view.choose(-1);
        }
    }

    Object.assign(timeline, {followKeys, fit, openSearch, toggleHelp});
})(window.rankscopeTimeline ??= {});
