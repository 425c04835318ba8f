// Counters: samples of GPUs, network cards and hosts, as small curves below the lanes of each row.
//
//   SM clock, MHz    1980 |-----\____           a track reaches from 0 to the highest value of all rows
//   Received, MB/s    640 |__/--\___            a counter's rate is constant between two samples

(function (timeline) {
    const TRACK_PX = 20;
    const FONT = "10px -apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";
    const FULL_SCALE = 65535;
    const DEVICE_COLOURS = ["#1c7ed6", "#d9480f", "#2b8a3e", "#9c36b5", "#0b7285", "#c2255c", "#5f3dc4", "#846358"];

    // The counters of the server: tracks, and for each row its curves. null: none are shown.
    function decodeCounters(counters, numRows) {
        if (!counters) {
            return null;
        }
        const [at, value] = [timeline.unpack(counters.at), timeline.unpack(counters.value)];
        const curves = counters.curves.map((curve) => ({
            ...curve,
            at: at.subarray(curve.first, curve.last),
            value: value.subarray(curve.first, curve.last),
        }));
        const ofRow = Array.from({length: numRows}, () => []);
        curves.forEach((curve) => curve.rows.forEach((row) => ofRow[row].push(curve)));
        return {tracks: counters.tracks, ofRow};
    }

    // Height of all tracks of a row.
    function countersPx({counters}) {
        return counters ? counters.tracks.length * TRACK_PX : 0;
    }

    function trackTop(view, place, track) {
        return timeline.AXIS_PX + place.top + view.block * view.rowHeight + track * TRACK_PX;
    }

    function drawCounters(context, view) {
        const {spans: {counters}, placed} = view;
        if (!counters) {
            return;
        }
        for (const place of placed) {
            context.save();
            context.beginPath();
            context.rect(0, timeline.AXIS_PX + place.from, view.width, Math.max(0, place.to - place.from));
            context.clip();
            counters.tracks.forEach((track, number) => drawTrack(context, view, place, track, number));
            context.restore();
        }
    }

    function drawTrack(context, view, place, track, number) {
        const {gutter, width, colours} = view;
        const [top, curves] = [trackTop(view, place, number), view.spans.counters.ofRow[place.row]];
        context.fillStyle = colours.faint;
        context.fillRect(gutter, top + TRACK_PX - 2, width - gutter, 1);
        context.fillStyle = colours.dim;
        context.font = FONT;
        context.textBaseline = "middle";
        context.textAlign = "right";
        context.fillText(trackName(context, track, gutter - 12), gutter - 8, top + TRACK_PX / 2);
        context.textAlign = "left";
        const own = curves.filter((curve) => curve.track === number);
        context.save();
        context.beginPath();
        context.rect(gutter, top, width - gutter, TRACK_PX);
        context.clip();
        own.forEach((curve, at) => drawCurve(context, view, curve, top, DEVICE_COLOURS[at % DEVICE_COLOURS.length]));
        context.restore();
    }

    // The longest name that fits: `SM clock 0 to 1,980 MHz`, `SM clock, MHz`, `SM clock`.
    function trackName(context, {name, unit, high}, room) {
        const inUnit = unit ? `${name}, ${unit}` : name;
        return [`${name} 0 to ${numberText(high)} ${unit}`.trim(), inUnit, name]
            .find((text) => context.measureText(text).width <= room) ?? name;
    }

    function drawCurve(context, view, {at, value, holds}, top, colour) {
        const y = (share) => top + TRACK_PX - 3 - (share / FULL_SCALE) * (TRACK_PX - 6);
        const edge = view.width + 5;
        context.strokeStyle = colour;
        context.lineWidth = 1.5;
        context.beginPath();
        context.moveTo(Math.max(-5, Math.min(timeline.xOf(view, at[0]), edge)), y(value[0]));
        for (let index = 1; index < at.length; index += 1) {
            if (holds) {
                context.lineTo(timeline.xOf(view, at[index]), y(value[index - 1]));
            }
            context.lineTo(timeline.xOf(view, at[index]), y(value[index]));
        }
        context.lineTo(Math.max(edge, timeline.xOf(view, at.at(-1))), y(value.at(-1)));
        context.stroke();
    }

    // Lines about the counters at a place. null: there is no track.
    function counterLines(view, x, y) {
        const place = view.spans.counters && x >= view.gutter && timeline.placeAt(view, y);
        const number = place ? Math.floor((y - trackTop(view, place, 0)) / TRACK_PX) : -1;
        const track = number >= 0 ? view.spans.counters.tracks[number] : undefined;
        if (!track) {
            return null;
        }
        const tick = timeline.tickAt(view, x);
        const own = view.spans.counters.ofRow[place.row].filter((curve) => curve.track === number);
        const {rank, name} = view.spans.rows[place.row];
        const values = own.map((curve) => {
            const value = numberText((valueAt(curve, tick) / FULL_SCALE) * track.high);
            return `${curve.device || "host"}: ${value} ${track.unit}`.trim();
        });
        return [track.name, ...(values.length ? values : ["no samples"]), `rank ${rank}`, ...(name ? [name] : [])];
    }

    function valueAt({at, value, holds}, tick) {
        let next = 0;
        while (next < at.length && at[next] <= tick) {
            next += 1;
        }
        if (next === 0 || next === at.length || holds) {
            return value[Math.max(0, next - 1)];
        }
        const share = (tick - at[next - 1]) / (at[next] - at[next - 1]);
        return value[next - 1] + share * (value[next] - value[next - 1]);
    }

    function numberText(value) {
        return value >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
    }

    Object.assign(timeline, {decodeCounters, countersPx, drawCounters, counterLines, numberText});
})(window.rankscopeTimeline ??= {});
