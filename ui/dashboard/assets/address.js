// Writes user actions on the timeline into the address, without a request to the server. A selection adds an entry to the
// browser history. Zoom replaces the current entry, so "back" does not undo each zoom step.

window.dash_clientside = Object.assign(window.dash_clientside ?? {}, {
    rankscope: (() => {
        // The event that Dash's links send after they have changed the address.
        const MOVED = "_dashprivate_pushstate";
        const put = (fields, name, text) => (text ? fields.set(name, text) : fields.delete(name));
        // Property of the component -> how its value is written. The server reads it in ui/dashboard/view_state.py.
        const WRITERS = {
            clicked: (fields, {rank, seq}) => put(fields, "span", rank === null ? "" : `${rank}-${seq}`),
            marked: (fields, {area}) => put(fields, "area", area?.join("-")),
            pins: (fields, {ranks}) => {
                put(fields, "pins", ranks.join("."));
                fields.delete("area");
            },
            zoomed: (fields, {range}) => put(fields, "zoom", range?.join("-")),
        };

        // Of the two timelines of the compare page, only zoom and pins are part of the address: they are common to both.
        const CHOICES = new Set(["clicked", "marked"]);
        const CHOOSING = '"canvas":"timeline"';

        function followHands() {
            const {triggered} = window.dash_clientside.callback_context;
            const changes = triggered
                .map(({prop_id: id, value}) => [id.slice(id.lastIndexOf(".") + 1), value, id])
                .filter(([name, value, id]) => value && (!CHOICES.has(name) || id.includes(CHOOSING)));
            const fields = new URLSearchParams(location.search);
            changes.forEach(([name, value]) => WRITERS[name](fields, value));
            const after = `?${fields}`;
            if (!changes.length || after === `?${new URLSearchParams(location.search)}`) {
                return;
            }
            const onlyZoomed = changes.every(([name]) => name === "zoomed");
            onlyZoomed ? history.replaceState(history.state, "", after) : history.pushState({}, "", after);
            window.dispatchEvent(new CustomEvent(MOVED));
        }

        // Goes to an address, as a link does.
        function follow(search) {
            history.pushState({}, "", search);
            window.dispatchEvent(new CustomEvent(MOVED));
        }

        // Goes to an address from the server. Keeps what the user has changed in the address since the request.
        function goTo([before, after]) {
            const [was, now, fields] = [before, location.search, after].map((search) => new URLSearchParams(search));
            new Set([...was.keys(), ...now.keys()]).forEach((name) => {
                if (was.get(name) !== now.get(name)) {
                    put(fields, name, now.get(name));
                }
            });
            follow(`?${fields}`);
        }

        // A place on an axis as a number. Plotly writes a time as "2026-11-27 03:32:11.12", in the time zone of the server.
        function toNumber(place) {
            if (typeof place !== "string") {
                return place;
            }
            const [day, time] = place.split(" ");
            return Date.parse(`${day}T${time ?? "00:00"}Z`);
        }

        // The ends of a drag along the x axis of a chart. A zoom of both axes, a change of the size, and the zoom of a chart that
        // follows another one (curves.js) are no choice.
        let newest = null;
        function brushed() {
            const {triggered} = window.dash_clientside.callback_context;
            const drags = triggered.filter(({value}) => value && value !== newest && "xaxis.range[0]" in value);
            const [{prop_id: id, value: change}] = drags.length === 1 ? drags : [{}];
            const [first, last] = [change?.["xaxis.range[0]"], change?.["xaxis.range[1]"]].map(toNumber);
            if (!Number.isFinite(first) || "yaxis.range[0]" in change) {
                return window.dash_clientside.no_update;
            }
            newest = change;
            return {chart: JSON.parse(id.slice(0, id.lastIndexOf("."))).chart, first, last, number: Date.now()};
        }

        // The title of the browser's tab.
        function setTitle(title) {
            document.title = title;
            return title;
        }

        return {follow, followHands, goTo, brushed, setTitle};
    })(),
});
