// Zoom and pan: pure functions of the visible window [first, last] in ticks, within [0, end].

(function (timeline) {
    const LEAST_TICKS = 1000;
    const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
    // The largest unit of which the window is at least two, or its end at least ten: 750 ms, 2.5 s, 10.25 s.
    const [UNITS_LONG, UNITS_FROM_ZERO] = [2, 10];

    // Moves a window into [0, end], and changes its length if it is too long or too short.
    function clamp([first, last], end) {
        const length = Math.min(Math.max(last - first, Math.min(LEAST_TICKS, end)), end);
        const begin = Math.min(Math.max(first, 0), end - length);
        return [begin, begin + length];
    }

    // Zooms so that `at` keeps its place on the screen. A `factor` below 1 zooms in.
    function zoomAbout([first, last], at, factor, end) {
        const length = Math.min(Math.max((last - first) * factor, Math.min(LEAST_TICKS, end)), end);
        const share = (at - first) / (last - first);
        return clamp([at - share * length, at + (1 - share) * length], end);
    }

    function pan([first, last], by, end) {
        return clamp([first + by, last + by], end);
    }

    // A range with a margin around it, for the key F.
    function around(first, last, end) {
        const margin = Math.max((last - first) * 0.5, LEAST_TICKS / 4);
        return clamp([first - margin, last + margin], end);
    }

    // Round times for an axis of `widthPx`: {values (ns), name of the unit, text(ns)}.
    function axisTicks(firstNs, lastNs, widthPx) {
        const rough = (lastNs - firstNs) / Math.max(2, widthPx / 110);
        const power = 10 ** Math.floor(Math.log10(rough));
        const step = [1, 2, 5, 10].map((times) => times * power).find((candidate) => candidate >= rough);
        const fits = ([ns]) => lastNs - firstNs >= UNITS_LONG * ns || lastNs >= UNITS_FROM_ZERO * ns;
        const [unit, name] = UNITS.find(fits) ?? UNITS.at(-1);
        const values = [];
        for (let at = Math.ceil(firstNs / step) * step; at <= lastNs; at += step) {
            values.push(at);
        }
        const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
        return {values, name, text: (ns) => (ns / unit).toFixed(digits)};
    }

    // `812 µs`, `40.2 ms`, `1.25 s`: the same as in ui/dashboard/wording.py.
    function durationText(ns) {
        if (ns < 1e3) {
            return `${Math.round(ns)} ns`;
        }
        if (ns < 1e6) {
            return `${Math.round(ns / 1e3)} µs`;
        }
        if (ns < 1e9) {
            return `${(ns / 1e6).toFixed(ns < 1e8 ? 1 : 0)} ms`;
        }
        return `${(ns / 1e9).toFixed(2)} s`;
    }

    Object.assign(timeline, {clamp, zoomAbout, pan, around, axisTicks, durationText, LEAST_TICKS});
})(window.rankscopeTimeline ??= {});
