// Values that the timeline sends to the page come back from the server later. The user may have changed the value meanwhile, so
// a returned value is ignored if it was sent before.

(function (timeline) {
    const KEPT_MS = 5000;

    class Echo {
        constructor(now = () => performance.now()) {
            this.now = now;
            this.sent = [];
        }

        keep(value) {
            this.sent.push([JSON.stringify(value), this.now()]);
        }

        // Whether a value from the page is new: it was not sent by this timeline.
        isNews(value) {
            const oldest = this.now() - KEPT_MS;
            this.sent = this.sent.filter(([, at]) => at >= oldest);
            const at = this.sent.findIndex(([sent]) => sent === JSON.stringify(value));
            this.sent.splice(0, at + 1);
            return at < 0;
        }
    }

    Object.assign(timeline, {Echo});
})(window.rankscopeTimeline ??= {});
