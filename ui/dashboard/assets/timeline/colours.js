// Colours of the current theme, read from the page: packed for the raster, and as text for other drawing.

(function (timeline) {
    const WAITING = 0.55;
    const EDGE = 0.35;
    const FADED = 0.82;
    const [STEP, NEXT_STEP] = [0.1, 0.18];
    const [IDEAL, LOST] = [0.1, 0.3];

    // `rgb(1, 2, 3)`, `#123456` or `#abc` to [1, 2, 3].
    function channels(text) {
        if (text.startsWith("#")) {
            const hex = text.length === 4 ? [...text.slice(1)].map((one) => one + one).join("") : text.slice(1, 7);
            return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
        }
        return text.match(/[\d.]+/g).slice(0, 3).map(Number);
    }

    function packed([red, green, blue]) {
        return (0xff000000 | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
    }

    function unpacked(colour) {
        return `rgb(${colour & 255}, ${(colour >>> 8) & 255}, ${(colour >>> 16) & 255})`;
    }

    // Black or white: the one that is readable on a colour.
    function readableOn(colour) {
        const light = (colour & 255) * 0.299 + ((colour >>> 8) & 255) * 0.587 + ((colour >>> 16) & 255) * 0.114;
        return light > 140 ? "#111111" : "#fdfdfd";
    }

    // Text colour of a bar's label. The label is in the middle of the bar, so the colour of that part counts.
    function inkOf(spans, index, inks) {
        const isWaiting = 2 * spans.waited[index] > spans.duration[index];
        return inks[isWaiting ? "waiting" : "stage"].get(spans.stage[index]);
    }

    // `stages`: code -> {colour}. `found`: codes of the search; the others are drawn paler. null: no search.
    function coloursOf(element, stages, found) {
        const style = getComputedStyle(element);
        const body = packed(channels(style.backgroundColor));
        const text = packed(channels(style.color));
        const named = (name) => style.getPropertyValue(name).trim() || style.color;
        const [stage, waiting, edge] = [new Uint32Array(256), new Uint32Array(256), new Uint32Array(256)];
        const inks = {stage: new Map(), waiting: new Map()};
        for (const [code, {colour}] of stages) {
            const full = packed(channels(colour));
            stage[code] = found && !found.has(code) ? timeline.mix(full, body, FADED) : full;
            waiting[code] = timeline.mix(stage[code], body, WAITING);
            edge[code] = timeline.mix(stage[code], body, EDGE);
            inks.stage.set(code, readableOn(stage[code]));
            inks.waiting.set(code, readableOn(waiting[code]));
        }
        return {
            body,
            step: timeline.mix(body, text, STEP),
            nextStep: timeline.mix(body, text, NEXT_STEP),
            ideal: timeline.mix(body, packed(channels(named("--ideal"))), IDEAL),
            lost: timeline.mix(body, packed(channels(named("--lost"))), LOST),
            stage,
            waiting,
            edge,
            inks,
            text: unpacked(text),
            dim: unpacked(timeline.mix(text, body, 0.35)),
            faint: unpacked(text).replace("rgb(", "rgba(").replace(")", ", 0.13)"),
            paper: unpacked(body),
            accent: getComputedStyle(element).getPropertyValue("--link").trim() || unpacked(text),
        };
    }

    Object.assign(timeline, {channels, packed, inkOf, coloursOf});
})(window.rankscopeTimeline ??= {});
