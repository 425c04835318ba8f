// The elements of the component: buttons, search, legend, scrolled canvas, tooltip, help, and text for screen readers.

(function (timeline) {
    const HELP = [
        ["W / S, wheel", "zoom in and out at the pointer"],
        ["A / D, drag", "move left and right; drag up and down, or Shift + wheel, to scroll the rows"],
        ["F, double click", "zoom to the selected span, to the marked area, or to the whole step"],
        [". / ,", "next and previous span in the lane"],
        ["↑ / ↓", "nearest span one lane up or down"],
        ["drag on the small picture", "move the visible part, or one of its sides; click: go there"],
        ["[ / ]", "previous and next step"],
        ["/", "find a stage by name; Enter: next span of it"],
        ["Shift + drag", "mark an area: the panel beside the timeline shows its statistics by stage"],
        ["P, click on a name", "pin the row of a rank to the top, or unpin it"],
        ["0", "show everything"],
        ["Esc", "close this list, then clear search, area and selection"],
        ["?", "this list"],
    ];

    function make(tag, properties = {}, ...children) {
        const element = document.createElement(tag);
        for (const [name, value] of Object.entries(properties)) {
            name in element ? (element[name] = value) : element.setAttribute(name, value);
        }
        element.append(...children);
        return element;
    }

    function button(text, label, title) {
        return make("button", {type: "button", className: "button small", textContent: text, "aria-label": label, title});
    }

    // Creates the elements in `root` and returns them by name.
    function build(root, label) {
        const helpId = `${root.id || "span-timeline"}-help`;
        const parts = {
            zoomIn: button("+", "zoom in", "zoom in: W"),
            zoomOut: button("−", "zoom out", "zoom out: S"),
            fit: button("Fit", "fit", "zoom to the selection, or to the whole step: F"),
            searchButton: button("Find", "find a stage", "find a stage: /"),
            helpButton: button("?", "keyboard shortcuts", "keyboard shortcuts: ?"),
            search: make("input", {type: "search", placeholder: "stage …", hidden: true, "aria-label": "stage to find"}),
            found: make("span", {className: "span-timeline-found", role: "status"}),
            legend: make("div", {className: "span-timeline-legend"}),
            map: make("canvas", {className: "span-timeline-map", "aria-hidden": "true"}),
            canvas: make("canvas", {"aria-hidden": "true"}),
            spacer: make("div", {className: "span-timeline-spacer"}),
            hiddenRows: make("div", {className: "span-timeline-hidden-rows"}),
            tooltip: make("div", {className: "span-timeline-tooltip", hidden: true, "aria-hidden": "true"}),
            spoken: make("div", {className: "span-timeline-spoken", "aria-live": "polite"}),
            help: helpOf(helpId),
        };
        parts.spacer.append(parts.canvas);
        parts.scroll = make("div", {
            className: "span-timeline-scroll",
            tabIndex: 0,
            role: "application",
            "aria-roledescription": "timeline",
            "aria-label": label ?? "timeline",
            "aria-describedby": helpId,
        }, parts.spacer);
        const tools = [parts.zoomIn, parts.zoomOut, parts.fit, parts.searchButton, parts.helpButton, parts.search, parts.found];
        root.replaceChildren(
            make("div", {className: "span-timeline-tools"}, parts.legend, make("div", {className: "span-timeline-buttons"}, ...tools)),
            parts.map,
            parts.scroll,
            parts.hiddenRows,
            parts.tooltip,
            parts.help,
            parts.spoken,
        );
        return parts;
    }

    function helpOf(id) {
        const rows = HELP.map(([keys, text]) => make("div", {}, make("dt", {textContent: keys}), make("dd", {textContent: text})));
        const close = button("Close", "close the list of keyboard shortcuts", "Esc");
        const help = make("div", {id, className: "span-timeline-help", role: "dialog", hidden: true, "aria-label": "keyboard shortcuts"},
            make("dl", {}, ...rows), close);
        close.addEventListener("click", () => { help.hidden = true; });
        return help;
    }

    // Shows names and colours of the stages. A click searches for a stage.
    function fillLegend(legend, stages, choose) {
        const entries = [...stages.values()].map(({label, colour}) => {
            const swatch = make("span", {className: "swatch"});
            swatch.style.background = colour;
            const entry = make("button", {type: "button", title: `find ${label}`}, swatch, label);
            entry.addEventListener("click", () => choose(label));
            return entry;
        });
        legend.replaceChildren(...entries);
    }

    Object.assign(timeline, {make, build, fillLegend});
})(window.rankscopeTimeline ??= {});
