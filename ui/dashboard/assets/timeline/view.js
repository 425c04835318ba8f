// The timeline in an element: its content, its zoom, and when it is drawn.

(function (timeline) {
    const ZOOM_SETTLED_MS = 350;

    class View {
        // `tell(properties)` sends properties to the page: see ui/dashboard/pages/panels.py.
        constructor(root, label, tell) {
            this.root = root;
            this.tell = tell;
            this.parts = timeline.build(root, label);
            this.context = this.parts.canvas.getContext("2d", {alpha: false});
            this.mapContext = this.parts.map.getContext("2d", {alpha: false});
            this.chosen = new timeline.Selection(tell, () => this.selectionChanged());
            this.zoomEcho = new timeline.Echo();
            this.suspects = new Set();
            this.widths = new Map();
            this.hovered = -1;
            this.partners = [];
            this.latest = -1;
            this.placed = [];
            this.scrollTop = 0;
            this.watchers = timeline.watch(this);
            root.timeline = timeline.hookOf(this);
        }

        // Called with the properties of the component, each time the page sets some.
        update(props) {
            this.suspects = new Set(props.suspects ?? []);
            this.root.dataset.theme = props.theme ?? "auto";
            if (props.data !== this.data) {
                this.data = props.data;
                this.load(props.data);
            }
            this.chosen.take(props);
            this.takeZoom(props.zoom ?? null);
            this.recolour();
            this.selectionChanged();
        }

        load(data) {
            this.spans = data ? timeline.decode(data) : null;
            this.frame = null;
            this.hovered = -1;
            this.placed = [];
            delete this.root.dataset.drawn;
            if (!this.spans) {
                return;
            }
            this.tracks = timeline.tracksOf(this.spans);
            this.strip = this.spans.ideal && timeline.stripOf(this.spans.ideal);
            const levels = this.tracks.levels.map((number, lane) => number || (this.strip?.tracks.levels[lane] ?? 0));
            const shares = timeline.laneShares(this.spans.lanes, levels);
            const factor = this.strip ? timeline.BLOCK / shares[this.strip.spans.firstLane].top : 1;
            this.placeLanes(shares, timeline.rowHeight(this.spans.rows.length, factor));
            this.window = this.windowOf(this.zoomNs ?? null);
            timeline.fillLegend(this.parts.legend, this.spans.stages, (label) => {
                this.find(this.parts.search.value === label ? "" : label, true);
            });
        }

        // `shares` of the lanes: of a row without counters, which is `lanesHeight` high. Counters are below the lanes.
        placeLanes(shares, lanesHeight) {
            this.lanesHeight = lanesHeight;
            this.rowHeight = lanesHeight + timeline.countersPx(this.spans);
            const scale = lanesHeight / this.rowHeight;
            this.block = timeline.BLOCK * scale;
            this.shares = shares.map((share) => ({
                top: share.top * scale, height: share.height * scale, level: share.level * scale,
            }));
        }

        takeZoom(zoom) {
            const text = JSON.stringify(zoom);
            if (text !== this.givenZoom && this.zoomEcho.isNews(zoom)) {
                this.zoomNs = zoom;
                this.window = this.spans && this.windowOf(zoom);
            }
            this.givenZoom = text;
        }

        windowOf(zoom) {
            const {end, tickNs} = this.spans;
            return zoom ? timeline.clamp(zoom.map((ns) => ns / tickNs), end) : [0, end];
        }

        // The user zooms or pans. Draws at once, and sends the zoom when the movement has stopped.
        moveTo(window) {
            this.window = window;
            this.invalidate();
            const {end, tickNs} = this.spans;
            const whole = window[0] <= 0 && window[1] >= end;
            this.zoomNs = whole ? null : [Math.floor(window[0] * tickNs), Math.ceil(window[1] * tickNs)];
            this.chosen.later("zoomed", ZOOM_SETTLED_MS, () => this.tellZoom());
        }

        tellZoom() {
            this.zoomEcho.keep(this.zoomNs);
            this.tell({zoomed: {range: this.zoomNs, number: this.chosen.next()}});
        }

        selectionChanged() {
            if (!this.spans) {
                return;
            }
            this.selected = timeline.indexOf(this.spans, this.chosen.key);
            this.partners = this.selected < 0 ? [] : timeline.partners(this.spans, this.selected);
            this.latest = timeline.latestStarter(this.spans, this.selected, this.partners);
            this.pinned = this.chosen.pinned;
            this.area = this.chosen.area;
            this.displayed = timeline.displayedRows(this.spans, this.pinned);
            this.resize();
        }

        // Selects a span, scrolls to it, and describes it for screen readers.
        choose(index, afterMs) {
            this.chosen.choose(index < 0 ? null : timeline.keyOf(this.spans, index), afterMs);
            if (index >= 0) {
                this.bringIntoView(index);
                this.parts.spoken.textContent = timeline.wordsOf(this.spans, index).join(", ");
            }
        }

        bringIntoView(index) {
            const {spans, window, displayed, rowHeight, parts} = this;
            const [start, end] = [spans.start[index], spans.start[index] + spans.duration[index]];
            if (end < window[0] || start > window[1]) {
                this.moveTo(timeline.pan(window, (start + end) / 2 - (window[0] + window[1]) / 2, spans.end));
            }
            const at = displayed.rows.indexOf(spans.row[index]);
            const room = this.viewHeight - (displayed.numPinned + 1) * rowHeight;
            const below = (at - displayed.numPinned) * rowHeight;
            if (at >= displayed.numPinned && (below < this.scrollTop || below > this.scrollTop + room)) {
                parts.scroll.scrollTop = Math.max(0, below - room / 2);
            }
        }

        // Highlights the stages whose name contains `text` (`exactly`: is equal to it). "": no search.
        find(text, exactly = false) {
            const {spans, parts} = this;
            const wanted = text.trim().toLowerCase();
            const fits = ({label}) => (exactly ? label === wanted : label.includes(wanted));
            const codes = [...spans.stages].filter(([, stage]) => fits(stage)).map(([code]) => code);
            this.chosen.found = wanted ? new Set(codes) : null;
            parts.search.hidden = !wanted && document.activeElement !== parts.search;
            parts.search.value = text;
            const number = wanted ? spans.stage.reduce((sum, code) => sum + Number(this.chosen.found.has(code)), 0) : 0;
            parts.found.textContent = wanted ? `${number.toLocaleString("en")} ${number === 1 ? "span" : "spans"}` : "";
            this.recolour();
        }

        recolour() {
            if (this.spans) {
                this.colours = timeline.coloursOf(this.root, this.spans.stages, this.chosen.found);
                this.mapImage = null;
                this.invalidate();
            }
        }

        // Adapts the size to the page.
        resize() {
            const {parts, spans} = this;
            this.width = parts.scroll.clientWidth;
            if (!spans || !this.width) {
                return;
            }
            const rows = spans.rows.length * this.rowHeight;
            this.viewHeight = timeline.viewHeight(rows, window.innerHeight);
            this.height = this.viewHeight + timeline.AXIS_PX;
            Object.assign(this, timeline.namesWidth(this.context, spans, this.width));
            this.ratio = window.devicePixelRatio || 1;
            parts.scroll.style.height = `${this.height}px`;
            parts.spacer.style.height = `${rows + timeline.AXIS_PX}px`;
            sizeCanvas(parts.canvas, this);
            sizeCanvas(parts.map, {...this, height: timeline.MAP_PX});
            this.mapImage = null;
            this.invalidate();
        }

        invalidate() {
            this.frameRequest ??= requestAnimationFrame(() => {
                this.frameRequest = null;
                this.draw();
            });
        }

        // Draws now.
        draw() {
            if (!this.spans || !this.width || !this.colours) {
                return;
            }
            this.scrollTop = this.parts.scroll.scrollTop;
            this.placed = timeline.placedRows(this.displayed, this.rowHeight, this.scrollTop, this.viewHeight);
            timeline.drawFrame(this.context, this);
            timeline.drawMap(this);
            this.parts.hiddenRows.textContent = timeline.hiddenRowsText(this);
            this.root.dataset.drawn = "yes";
        }

        close() {
            cancelAnimationFrame(this.frameRequest);
            this.chosen.close();
            this.watchers.forEach((stop) => stop());
        }
    }

    function sizeCanvas(canvas, {width, height, ratio}) {
        const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
        if (canvas.width !== across || canvas.height !== down) {
            Object.assign(canvas, {width: across, height: down});
            Object.assign(canvas.style, {width: `${width}px`, height: `${height}px`});
        }
    }

    Object.assign(timeline, {View});
})(window.rankscopeTimeline ??= {});
