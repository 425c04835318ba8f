// A tree of components that no callback finds, drawn as React's alone. What is one: ui/dashboard/components.py.

window.rankscope = Object.assign(window.rankscope ?? {}, {
    Still: (() => {
        const nobody = () => {};

        function grow(node, key) {
            if (Array.isArray(node)) {
                return node.map(grow);
            }
            if (!node?.namespace) {
                return node;
            }
            const props = Object.entries(node.props).map(([name, value]) => [name, isGrown(value) ? grow(value) : value]);
            const type = window[node.namespace][node.type];
            return window.React.createElement(type, {...Object.fromEntries(props), key, setProps: nobody});
        }

        const isGrown = (value) => Boolean(value?.namespace) || (Array.isArray(value) && value.some(isGrown));

        return ({tree}) => grow(tree);
    })(),
});
