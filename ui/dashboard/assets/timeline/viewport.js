// Where the picture has been zoomed to: pure functions of a window [first, last] in ticks, within [0, end].

(function (timeline) {
    const LEAST_TICKS = 1000;
    const UNITS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];

    // A window moved and, where it is too long or too short, cut so that it lies within [0, end].
    function clamp([first, last], end) {
        const length = Math.min(Math.max(last - first, Math.min(LEAST_TICKS, end)), end);
        const begin = Math.min(Math.max(first, 0), end - length);
        return [begin, begin + length];
    }

    // `at` stays where it is on the screen; `factor` below 1 shows less.
    function zoomAbout([first, last], at, factor, end) {
        const length = Math.min(Math.max((last - first) * factor, Math.min(LEAST_TICKS, end)), end);
        const share = (at - first) / (last - first);
        return clamp([at - share * length, at + (1 - share) * length], end);
    }

    function pan([first, last], by, end) {
        return clamp([first + by, last + by], end);
    }

    // A stretch with a margin around it, as `F` shows it.
    function around(first, last, end) {
        const margin = Math.max((last - first) * 0.5, LEAST_TICKS / 4);
        return clamp([first - margin, last + margin], end);
    }

    // Round times for an axis of so many pixels: {values (ns), unit (ns), name}.
    function axisTicks(firstNs, lastNs, widthPx) {
        const rough = (lastNs - firstNs) / Math.max(2, widthPx / 110);
        const power = 10 ** Math.floor(Math.log10(rough));
        const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough);
        const [unit, name] = [...UNITS].reverse().find(([ns]) => ns <= step * 5) ?? UNITS[0];
        const values = [];
        for (let at = Math.ceil(firstNs / step) * step; at <= lastNs; at += step) {
            values.push(at);
        }
        const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
        return {values, name, text: (ns) => (ns / unit).toFixed(digits)};
    }

    // `812 µs`, `40.2 ms`, `1.25 s`: as ui/dashboard/wording.py.
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
