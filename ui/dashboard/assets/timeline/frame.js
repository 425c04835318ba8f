// Paints the rows as an image, in device pixels: background, the pale range of each step, tracks. Idle time stays empty.

(function (timeline) {
    // Reuses the image of the last frame if it has the same size.
    function imageOf(kept, width, height) {
        if (kept && kept.image.width === width && kept.image.height === height) {
            return kept;
        }
        const image = new ImageData(width, height);
        return {
            image,
            pixels: new Uint32Array(image.data.buffer),
            pale: new Uint32Array(width),
            ideal: new Uint32Array(width),
            line: new Uint32Array(width),
        };
    }

    // Paints the rows `placed` (CSS pixels; one has `ratio` device pixels) and returns the places of labels:
    // [{spans, index, from, to, top, height}], device pixels.
    function paintRows(frame, view) {
        const {spans, strip, tracks, shares, placed, rowHeight, block, ratio, window, colours} = view;
        const labels = [];
        frame.pixels.fill(colours.body);
        if (strip) {
            timeline.idealLine(frame.ideal, strip.spans, window, colours);
        }
        for (const place of placed) {
            const clip = [Math.round(place.from * ratio), Math.min(Math.round(place.to * ratio), frame.image.height)];
            const y = (share) => Math.min(Math.max(Math.round((place.top + share * rowHeight) * ratio), clip[0]), clip[1]);
            paleLine(frame.pale, spans, place.row, window, colours);
            timeline.copyDown(frame.pixels, frame.pale, y(0), y(block));
            if (y(1) > y(block)) {
                frame.pixels.fill(colours.body, y(block) * frame.line.length, y(1) * frame.line.length);
            }
            const paint = (layer, track) => {
                const share = shares[track.lane];
                const top = share.top + track.level * share.level;
                paintTrack(frame, layer, track, y(top), y(top + share.level * 0.94), labels);
            };
            tracks.tracksOfRow[place.row].forEach((track) => paint({spans, tracks, window, colours, ground: frame.pale}, track));
            if (strip) {
                timeline.copyDown(frame.pixels, frame.ideal, y(shares[strip.spans.firstLane].top), y(block));
                const layer = {spans: strip.spans, tracks: strip.tracks, window, colours, ground: frame.ideal};
                strip.tracks.tracksOfRow[strip.spans.rowOf[place.row]].forEach((track) => paint(layer, track));
            }
        }
        return labels;
    }

    // Paints one track of a layer of spans. `ground`: the line of pixels behind it.
    function paintTrack(frame, {spans, tracks, window, colours, ground}, track, from, to, labels) {
        if (to <= from) {
            return;
        }
        frame.line.set(ground);
        const wide = [];
        if (!timeline.composeTrack(frame.line, spans, tracks, track, window, colours, wide)) {
            return;
        }
        timeline.copyDown(frame.pixels, frame.line, from, to);
        for (let at = 0; at < wide.length; at += 3) {
            labels.push({spans, index: wide[at], from: wide[at + 1], to: wide[at + 2], top: from, height: to - from});
        }
    }

    function paleLine(line, spans, row, [first, last], colours) {
        line.fill(colours.body);
        const scale = line.length / (last - first);
        for (const at of spans.stepsOfRow[row]) {
            const from = Math.round((spans.steps.start[at] - first) * scale);
            const to = Math.round((spans.steps.start[at] + spans.steps.duration[at] - first) * scale);
            if (to > 0 && from < line.length) {
                line.fill((spans.steps.number?.[at] ?? 0) % 2 ? colours.nextStep : colours.step, Math.max(0, from), to);
            }
        }
    }

    Object.assign(timeline, {imageOf, paintRows, paleLine});
})(window.rankscopeTimeline ??= {});
