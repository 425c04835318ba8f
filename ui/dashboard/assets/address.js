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

        function followHands() {
            const {triggered} = window.dash_clientside.callback_context;
            const changes = triggered
                .map(({prop_id: id, value}) => [id.slice(id.lastIndexOf(".") + 1), value])
                .filter(([, value]) => value);
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

        // Goes to an address from the server. Keeps what the user has changed in the address since the request.
        function goTo([before, after]) {
            const [was, now, fields] = [before, location.search, after].map((search) => new URLSearchParams(search));
            new Set([...was.keys(), ...now.keys()]).forEach((name) => {
                if (was.get(name) !== now.get(name)) {
                    put(fields, name, now.get(name));
                }
            });
            history.pushState({}, "", `?${fields}`);
            window.dispatchEvent(new CustomEvent(MOVED));
        }

        // The title of the browser's tab.
        function setTitle(title) {
            document.title = title;
            return title;
        }

        return {followHands, goTo, setTitle};
    })(),
});
