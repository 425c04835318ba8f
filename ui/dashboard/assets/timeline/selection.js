// The selection in a timeline: a span, pinned ranks, a marked area, a stage of the search. The first three are sent to the page,
// and read from it.

(function (timeline) {
    const SETTLED_MS = 200;

    class Selection {
        // `tell(properties)` sends properties to the page. `changed()` redraws the timeline.
        constructor(tell, changed) {
            this.tell = tell;
            this.changed = changed;
            this.key = null;
            this.pinned = [];
            this.area = null;
            this.found = null;
            this.number = Date.now();
            this.echoes = {key: new timeline.Echo(), pinned: new timeline.Echo(), area: new timeline.Echo()};
            this.timers = {};
        }

        // Uses those properties of the page that have changed.
        take({selected = null, pinned = [], area = null}) {
            for (const [name, value] of [["key", selected], ["pinned", pinned ?? []], ["area", area]]) {
                const text = JSON.stringify(value);
                if (text !== this.given?.[name] && this.echoes[name].isNews(value)) {
                    this[name] = value;
                }
                this.given = {...this.given, [name]: text};
            }
        }

        // `afterMs`: delay. If keys select many spans in a short time, only the last one is sent.
        choose(key, afterMs = SETTLED_MS) {
            this.key = key;
            this.changed();
            this.later("clicked", afterMs, () => {
                this.echoes.key.keep(key);
                this.tell({clicked: {rank: key?.rank ?? null, seq: key?.seq ?? null, number: this.next()}});
            });
        }

        togglePin(rank) {
            const rest = this.pinned.filter((pinned) => pinned !== rank);
            this.pinned = rest.length < this.pinned.length ? rest : [...rest, rank].slice(-8);
            this.area = null;
            this.changed();
            this.echoes.pinned.keep(this.pinned);
            this.tell({pins: {ranks: this.pinned, number: this.next()}});
        }

        mark(area) {
            this.area = area;
            this.changed();
            this.echoes.area.keep(area);
            this.tell({marked: {area, number: this.next()}});
        }

        hover(key) {
            this.later("hovered", SETTLED_MS, () => {
                this.tell({hovered: {rank: key?.rank ?? null, seq: key?.seq ?? null, number: this.next()}});
            });
        }

        // Sends later. Of several calls in a short time, only the last one is sent.
        later(name, afterMs, tell) {
            clearTimeout(this.timers[name]);
            this.timers[name] = setTimeout(tell, afterMs);
        }

        next() {
            this.number += 1;
            return this.number;
        }

        close() {
            Object.values(this.timers).forEach(clearTimeout);
        }
    }

    Object.assign(timeline, {Selection});
})(window.rankscopeTimeline ??= {});
