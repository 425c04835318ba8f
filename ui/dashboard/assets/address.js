// What hands do stands in the address. On a timeline at once, without a question to the server first: a choice is a step to go
// back to; zoom takes the place of the address before: going back leaves the picture, not every turn of the wheel.

window.dash_clientside = Object.assign(window.dash_clientside ?? {}, {
    rankscope: (() => {
        // What Dash's own links say when they have changed the address.
        const MOVED = "_dashprivate_pushstate";
        const put = (fields, name, text) => (text ? fields.set(name, text) : fields.delete(name));
        // By property of the component: how its value is written. The server reads it: ui/dashboard/view_state.py.
        const WRITES = {
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
            const told = triggered
                .map(({prop_id: id, value}) => [id.slice(id.lastIndexOf(".") + 1), value])
                .filter(([, value]) => value);
            const fields = new URLSearchParams(location.search);
            told.forEach(([name, value]) => WRITES[name](fields, value));
            const after = `?${fields}`;
            if (!told.length || after === `?${new URLSearchParams(location.search)}`) {
                return;
            }
            const keeps = told.every(([name]) => name === "zoomed");
            keeps ? history.replaceState(history.state, "", after) : history.pushState({}, "", after);
            window.dispatchEvent(new CustomEvent(MOVED));
        }

        // What hands have changed in the address since the server was asked stays.
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

        return {followHands, goTo};
    })(),
});
