// Event sources of a view: pointer, keys, buttons, its size, the colours of the page, the resolution of the screen.

(function (timeline) {
    function watch(view) {
        return [
            timeline.followPointer(view),
            timeline.followMap(view),
            timeline.followKeys(view),
            followButtons(view),
            followSize(view),
            followColours(view),
            followResolution(view),
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
        ].map(([element, action]) => [element, () => view.spans && action()]);
        listeners.forEach(([element, action]) => element.addEventListener("click", action));
        return () => listeners.forEach(([element, action]) => element.removeEventListener("click", action));
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

    // The resolution changes if the window is moved to another screen, or if the user zooms the page.
    function followResolution(view) {
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
