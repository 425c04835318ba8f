// Acknowledge a finding, write a note about it, or silence it. A dialog asks for name and text. The browser sends the
// action to the collector with its password. If the collector refuses this password, the dialog asks for the write
// token. The token stays in the memory of this page.

(() => {
    const HOUR_MS = 3_600_000;
    const SILENCES = { "1 hour": 1, "4 hours": 4, "1 day": 24, "7 days": 168, "30 days": 720 };
    const TITLES = {
        "acknowledge": "Acknowledge this finding",
        "reopen": "Withdraw the acknowledgement",
        "note": "Write a note",
        "silence": "Silence this finding",
        "end-silence": "End the silence",
    };
    const NAME_KEY = "rankscope-name";
    let writeToken = "";

    function element(name, properties = {}, children = []) {
        const made = Object.assign(document.createElement(name), properties);
        made.append(...children);
        return made;
    }

    function labelled(text, input) {
        return element("label", {}, [text, input]);
    }

    function rememberedName() {
        try {
            return localStorage.getItem(NAME_KEY) ?? "";
        } catch {
            return "";
        }
    }

    function rememberName(name) {
        try {
            localStorage.setItem(NAME_KEY, name);
        } catch {
            // storage is disabled: the name is asked for again
        }
    }

    function fieldsOf(action) {
        const fields = {
            who: element("input", {
                name: "who", required: true, maxLength: 64, value: rememberedName(), autocomplete: "name",
            }),
            text: element("textarea", { name: "text", maxLength: 1000, rows: 3, required: action === "note" }),
            token: element("input", { name: "token", type: "password", autocomplete: "off", value: writeToken }),
        };
        if (action === "silence") {
            const option = ([text, hours]) => element("option", { textContent: text, value: hours });
            const choices = [...Object.entries(SILENCES), ["until a time …", ""]];
            fields.hours = element("select", { name: "hours", ariaLabel: "For" }, choices.map(option));
            fields.until = element("input", { name: "until", type: "datetime-local" });
        }
        return fields;
    }

    // The end of a silence. Without an end: a time in the past, which the collector refuses with a reason.
    function endMs({ hours, until }) {
        return hours.value ? Date.now() + Number(hours.value) * HOUR_MS : Date.parse(until.value) || 1;
    }

    async function sendAction(finding, action, fields) {
        const until = BigInt(action === "silence" ? endMs(fields) : 0) * 1_000_000n;
        const body = { ...finding, action, who: fields.who.value, text: fields.text.value, until_ns: String(until) };
        const headers = { "Content-Type": "application/json" };
        if (fields.token.value) {
            headers.Authorization = `Bearer ${fields.token.value}`;
        }
        // With the token of the dialog, the browser must not ask for a password after a refusal.
        const credentials = fields.token.value ? "omit" : "same-origin";
        const request = { method: "POST", headers, credentials, body: JSON.stringify(body) };
        const response = await fetch("v1/finding-actions", request);
        return { ok: response.ok, status: response.status, ...await response.json() };
    }

    function openDialog(finding, action) {
        const fields = fieldsOf(action);
        const token = labelled("Write token of the collector", fields.token);
        token.hidden = !writeToken;
        const until = fields.until && labelled("Until", fields.until);
        if (until) {
            until.hidden = true;
            fields.hours.addEventListener("change", () => { until.hidden = Boolean(fields.hours.value); });
        }
        const answer = element("p", { className: "answer" });
        answer.setAttribute("role", "alert");
        const send = element("button", { className: "button primary small", textContent: "Send" });
        const cancel = element("button", { className: "button small", type: "button", textContent: "Cancel" });
        const form = element("form", { method: "dialog" }, [
            element("h2", { textContent: TITLES[action] }),
            labelled("Your name", fields.who),
            ...(until ? [labelled("For", fields.hours), until] : []),
            labelled(action === "note" ? "Note" : "Note (optional)", fields.text),
            token,
            answer,
            element("div", { className: "dialog-buttons" }, [send, cancel]),
        ]);
        const dialog = element("dialog", { className: "finding-dialog" }, [form]);
        dialog.setAttribute("aria-label", TITLES[action]);
        dialog.addEventListener("close", () => dialog.remove());
        cancel.addEventListener("click", () => dialog.close());
        form.addEventListener("submit", async (event) => {
            event.preventDefault();
            send.disabled = true;
            answer.textContent = "";
            try {
                const result = await sendAction(finding, action, fields);
                if (result.ok) {
                    writeToken = fields.token.value;
                    rememberName(fields.who.value);
                    dialog.close();
                    return;
                }
                token.hidden = ![401, 403].includes(result.status) && token.hidden;
                answer.textContent = `${result.error}. Hint: ${result.hint}`;
            } catch {
                answer.textContent = "The collector does not answer.";
            }
            send.disabled = false;
        });
        document.body.append(dialog);
        dialog.showModal();
    }

    document.addEventListener("click", ({ target }) => {
        const button = target.closest?.("button[data-finding]");
        if (button) {
            openDialog(JSON.parse(button.dataset.finding), button.dataset.action);
        }
    });
})();
