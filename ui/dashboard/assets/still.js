// Draws a tree of components with React only. Dash callbacks do not find its components. See ui/dashboard/components.py.

window.rankscope = Object.assign(window.rankscope ?? {}, {
    Still: (() => {
        const ignore = () => {};

        function toElement(node, key) {
            if (Array.isArray(node)) {
                return node.map(toElement);
            }
            if (!node?.namespace) {
                return node;
            }
            const props = Object.entries(node.props).map(([name, value]) => [name, isTree(value) ? toElement(value) : value]);
            const type = window[node.namespace][node.type];
            // A key of its own: what a user opened stays open if rows are added above it.
            const own = {key: node.props.key ?? key, setProps: ignore};
            return window.React.createElement(type, {...Object.fromEntries(props), ...own});
        }

        const isTree = (value) => Boolean(value?.namespace) || (Array.isArray(value) && value.some(isTree));

        return ({tree}) => toElement(tree);
    })(),
});
