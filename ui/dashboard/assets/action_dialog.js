// A dialog that asks for the name of the person and for other fields, and sends them to the collector with the password of
// the browser. If the collector refuses this password, the dialog asks for the write token. The token stays in the memory of
// this page.

window.rankscope = Object.assign(window.rankscope ?? {}, (() => {
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

    async function post(path, body, token) {
        const headers = { "Content-Type": "application/json" };
        if (token) {
            headers.Authorization = `Bearer ${token}`;
        }
        // With the token of the dialog, the browser must not ask for a password after a refusal.
        const credentials = token ? "omit" : "same-origin";
        const response = await fetch(path, { method: "POST", headers, credentials, body: JSON.stringify(body) });
        return { ok: response.ok, status: response.status, ...await response.json() };
    }

    // Opens the dialog. labels: the fields after the name. bodies: returns the bodies of the requests to path, in order. The
    // first refusal ends the sending, and its reason is shown.
    function openDialog({ title, path, labels, bodies }) {
        const who = element("input", {
            name: "who", required: true, maxLength: 64, value: rememberedName(), autocomplete: "name",
        });
        const token = element("input", { name: "token", type: "password", autocomplete: "off", value: writeToken });
        const tokenLabel = labelled("Write token of the collector", token);
        tokenLabel.hidden = !writeToken;
        const answer = element("p", { className: "answer" });
        answer.setAttribute("role", "alert");
        const send = element("button", { className: "button primary small", textContent: "Send" });
        const cancel = element("button", { className: "button small", type: "button", textContent: "Cancel" });
        const form = element("form", { method: "dialog" }, [
            element("h2", { textContent: title }),
            labelled("Your name", who),
            ...labels,
            tokenLabel,
            answer,
            element("div", { className: "dialog-buttons" }, [send, cancel]),
        ]);
        const dialog = element("dialog", { className: "action-dialog" }, [form]);
        dialog.setAttribute("aria-label", title);
        dialog.addEventListener("close", () => dialog.remove());
        cancel.addEventListener("click", () => dialog.close());

        async function sendAll() {
            for (const body of bodies()) {
                const result = await post(path, { ...body, who: who.value }, token.value);
                if (!result.ok) {
                    tokenLabel.hidden = ![401, 403].includes(result.status) && tokenLabel.hidden;
                    answer.textContent = `${result.error}. Hint: ${result.hint}`;
                    return;
                }
            }
            writeToken = token.value;
            rememberName(who.value);
            dialog.close();
        }

        form.addEventListener("submit", async (event) => {
            event.preventDefault();
            send.disabled = true;
            answer.textContent = "";
            try {
                await sendAll();
            } catch {
                answer.textContent = "The collector does not answer.";
            }
            send.disabled = false;
        });
        document.body.append(dialog);
        dialog.showModal();
    }

    return { element, labelled, openDialog };
})());
