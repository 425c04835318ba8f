// What was told to the page comes back by way of the server a moment later. By then somebody may have moved on: an answer to
// something older than the newest told is no news.

(function (timeline) {
    const KEPT_MS = 5000;

    class Echo {
        constructor(now = () => performance.now()) {
            this.now = now;
            this.sent = [];
        }

        told(value) {
            this.sent.push([JSON.stringify(value), this.now()]);
        }

        // Whether a value that the page gives is new to us.
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
