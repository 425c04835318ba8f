// The Dash component around a View. It uses the React of Dash's bundle. Its properties: ui/dashboard/pages/panels.py.

window.rankscope = Object.assign(window.rankscope ?? {}, {
    SpanTimeline(props) {
        const {createElement, useLayoutEffect, useRef} = window.React;
        const holder = useRef(null);
        const view = useRef(null);
        const newest = useRef(props);
        newest.current = props;
        useLayoutEffect(() => {
            const tell = (properties) => newest.current.setProps(properties);
            view.current = new window.rankscopeTimeline.View(holder.current, props.label, tell);
            return () => view.current.close();
        }, []);
        useLayoutEffect(() => view.current.update(props));
        const id = typeof props.id === "object" ? JSON.stringify(props.id, Object.keys(props.id).sort()) : props.id;
        return createElement("div", {id, ref: holder, className: "span-timeline"});
    },
});
