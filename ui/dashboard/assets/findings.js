// Acknowledge a finding, write a note about it, or silence it. A dialog asks for name and text (action_dialog.js).

(() => {
    const { element, labelled, openDialog } = window.rankscope;
    const HOUR_MS = 3_600_000;
    const SILENCES = { "1 hour": 1, "4 hours": 4, "1 day": 24, "7 days": 168, "30 days": 720 };
    const TITLES = {
        "acknowledge": "Acknowledge this finding",
        "reopen": "Withdraw the acknowledgement",
        "note": "Write a note",
        "silence": "Silence this finding",
        "end-silence": "End the silence",
    };

    function silenceFields() {
        const option = ([text, hours]) => element("option", { textContent: text, value: hours });
        const choices = [...Object.entries(SILENCES), ["until a time …", ""]];
        const hours = element("select", { name: "hours", ariaLabel: "For" }, choices.map(option));
        const until = element("input", { name: "until", type: "datetime-local" });
        const untilLabel = labelled("Until", until);
        untilLabel.hidden = true;
        hours.addEventListener("change", () => { untilLabel.hidden = Boolean(hours.value); });
        return { hours, until, labels: [labelled("For", hours), untilLabel] };
    }

    // The end of a silence. Without an end: a time in the past, which the collector refuses with a reason.
    function endMs({ hours, until }) {
        return hours.value ? Date.now() + Number(hours.value) * HOUR_MS : Date.parse(until.value) || 1;
    }

    function ask(finding, action) {
        const text = element("textarea", { name: "text", maxLength: 1000, rows: 3, required: action === "note" });
        const silence = action === "silence" ? silenceFields() : null;
        openDialog({
            title: TITLES[action],
            path: "v1/finding-actions",
            labels: [...(silence?.labels ?? []), labelled(action === "note" ? "Note" : "Note (optional)", text)],
            bodies() {
                const until = BigInt(silence ? endMs(silence) : 0) * 1_000_000n;
                return [{ ...finding, action, text: text.value, until_ns: String(until) }];
            },
        });
    }

    document.addEventListener("click", ({ target }) => {
        const button = target.closest?.("button[data-finding]");
        if (button) {
            ask(JSON.parse(button.dataset.finding), button.dataset.action);
        }
    });
})();
