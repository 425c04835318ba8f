// The text at the pointer on a heat map: rank, host, position in the mesh, step and values. The data of a cell contain
// only the number of its rank, because a text for each cell would multiply the data of a large picture.

(() => {
    const HIDE_AT_EDGE_PX = 14;
    let text = null;
    let known = { json: "", places: null };

    // Hosts and axes of all ranks, from the element that ui/dashboard/pages/heat_map/page.py draws.
    function places() {
        const json = document.querySelector("[data-places]")?.dataset.places ?? "";
        if (json !== known.json) {
            known = { json, places: json ? JSON.parse(json) : null };
        }
        return known.places;
    }

    // The name of a rank in [[name, number of ranks], ...].
    function nameOf(rank, names) {
        let first = 0;
        for (const [name, number] of names) {
            first += number;
            if (rank < first) {
                return name;
            }
        }
        return "";
    }

    function placeOf(rank) {
        const found = places();
        if (!found) {
            return "";
        }
        const role = nameOf(rank, found.roles);
        const axes = found.axes.map(([name, stride, degree]) => `${name}${Math.floor(rank / stride) % degree}`).join(" ");
        return [nameOf(rank, found.hosts), role && `role ${role}`, axes].filter(Boolean).join(" · ");
    }

    // "{:.2f}x its peers" and 1.2345 -> "1.23x its peers". Empty without a number.
    function formatted(format, value) {
        return Number.isFinite(value) ? format.replace(/\{:\.(\d)f\}/, (_, digits) => value.toFixed(digits)) : "";
    }

    function lines(point, hover) {
        const rank = point.customdata[hover.rankAt];
        const several = hover.steps > 1 ? `steps ${point.x} to ${point.x + hover.steps - 1}` : `step ${point.x}`;
        const value = [hover.over, formatted(hover.value, point.z)].filter(Boolean).join(" ");
        return [placeOf(rank), hover.steps && several, value, formatted(hover.beside, point.customdata[hover.besideAt])];
    }

    function show(plot, { points, event }) {
        const hover = plot.layout.meta?.hover;
        const [point] = points;
        if (!hover || point?.data.type !== "heatmap" || !event) {
            return;
        }
        hide();
        text = document.createElement("div");
        text.className = "cell-hover";
        const title = document.createElement("b");
        title.textContent = `rank ${point.customdata[hover.rankAt]}`;
        text.append(title, lines(point, hover).filter(Boolean).join("\n"));
        document.body.append(text);
        const { width, height } = text.getBoundingClientRect();
        const left = event.clientX + HIDE_AT_EDGE_PX + width > innerWidth ? event.clientX - width - HIDE_AT_EDGE_PX
            : event.clientX + HIDE_AT_EDGE_PX;
        const top = Math.min(event.clientY + HIDE_AT_EDGE_PX, innerHeight - height - HIDE_AT_EDGE_PX);
        Object.assign(text.style, { left: `${Math.max(0, left)}px`, top: `${Math.max(0, top)}px` });
    }

    function hide() {
        text?.remove();
        text = null;
    }

    // Listeners are added when the pointer enters a plot, before it reaches a cell.
    document.addEventListener("mouseover", (event) => {
        const plot = event.target.closest?.(".js-plotly-plot");
        if (plot?.layout?.meta?.hover && !plot.showsPlaces) {
            plot.showsPlaces = true;
            plot.on("plotly_hover", (data) => show(plot, data));
            plot.on("plotly_unhover", hide);
        }
        if (!plot) {
            hide();
        }
    });
    addEventListener("_dashprivate_pushstate", hide);
})();
