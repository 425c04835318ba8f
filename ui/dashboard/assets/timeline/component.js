// The component as Dash's page takes it: React's, from Dash's own bundle, around a View. Its properties: ui/dashboard/pages/panels.py.

window.rankscope = Object.assign(window.rankscope ?? {}, {
    SpanTimeline(props) {
        const {createElement, useLayoutEffect, useRef} = window.React;
        const holder = useRef(null);
        const view = useRef(null);
        const newest = useRef(props);
        newest.current = props;
        useLayoutEffect(() => {
            const tell = (told) => newest.current.setProps(told);
            view.current = new window.rankscopeTimeline.View(holder.current, props.label, tell);
            return () => view.current.close();
        }, []);
        useLayoutEffect(() => view.current.update(props));
        const id = typeof props.id === "object" ? JSON.stringify(props.id, Object.keys(props.id).sort()) : props.id;
        return createElement("div", {id, ref: holder, className: "span-timeline"});
    },
});
