// What hands do on a timeline stands in the address at once, without a question to the server first. A choice is a step to
// go back to; zoom takes the place of the address before: going back leaves the picture, not every turn of the wheel.

window.dash_clientside = Object.assign(window.dash_clientside ?? {}, {
    rankscope: (() => {
        const put = (fields, name, text) => (text ? fields.set(name, text) : fields.delete(name));
        // By property of the component: how its value is written. The server reads it: ui/view_state.py.
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
            window.dash_clientside.set_props("url", {search: after});
        }

        return {followHands};
    })(),
});
