// What a view follows: pointer, keys, buttons, its size, the page's colours, the sharpness of the screen.

(function (timeline) {
    function watch(view) {
        return [
            timeline.followPointer(view),
            timeline.followKeys(view),
            followButtons(view),
            followSize(view),
            followColours(view),
            followSharpness(view),
        ];
    }

    function followButtons(view) {
        const {zoomIn, zoomOut, fit, searchButton, helpButton} = view.parts;
        const middle = () => (view.gutter + view.width) / 2;
        const listeners = [
            [zoomIn, () => timeline.zoomAt(view, middle(), 1 / 1.6)],
            [zoomOut, () => timeline.zoomAt(view, middle(), 1.6)],
            [fit, () => timeline.fit(view)],
            [searchButton, () => timeline.openSearch(view)],
            [helpButton, () => timeline.toggleHelp(view)],
        ].map(([element, does]) => [element, () => view.spans && does()]);
        listeners.forEach(([element, does]) => element.addEventListener("click", does));
        return () => listeners.forEach(([element, does]) => element.removeEventListener("click", does));
    }

    function followSize(view) {
        const observer = new ResizeObserver(() => view.resize());
        const resize = () => view.resize();
        observer.observe(view.parts.scroll);
        window.addEventListener("resize", resize);
        return () => {
            observer.disconnect();
            window.removeEventListener("resize", resize);
        };
    }

    function followColours(view) {
        const observer = new MutationObserver(() => view.recolour());
        observer.observe(document.documentElement, {attributes: true, attributeFilter: ["data-mantine-color-scheme"]});
        return () => observer.disconnect();
    }

    // A window that is moved to another screen, or zoomed by the browser.
    function followSharpness(view) {
        let query = null;
        const changed = () => {
            query?.removeEventListener("change", changed);
            query = matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`);
            query.addEventListener("change", changed);
            view.resize();
        };
        changed();
        return () => query.removeEventListener("change", changed);
    }

    Object.assign(timeline, {watch});
})(window.rankscopeTimeline ??= {});
