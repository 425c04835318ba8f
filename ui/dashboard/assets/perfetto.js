// Opens a trace file in Perfetto, in a new tab. Perfetto receives files from the page that opened it:
//
//     this page  -- "PING", until it answers -->  Perfetto
//                <-- "PONG" -------------------
//                -- {perfetto: {buffer, title, fileName}} -->

{
    const PING_MS = 100, ANSWER_MS = 20_000;

    // The tab is opened before the first `await`, because browsers block a tab that is opened later.
    document.addEventListener("click", async ({target}) => {
        const button = target.closest?.("button[data-perfetto]");
        if (!button) {
            return;
        }
        const {perfetto, trace, title} = button.dataset;
        const answer = button.closest(".trace-files").querySelector(".perfetto-answer");
        const tab = window.open(perfetto);
        if (!tab) {
            answer.textContent = "The browser blocked the new tab. Allow it, or save the file.";
            return;
        }
        button.disabled = true;
        answer.textContent = "opening …";
        try {
            const [file] = await Promise.all([load(trace), untilReady(tab, new URL(perfetto))]);
            tab.postMessage({perfetto: {title, ...file}}, new URL(perfetto).origin, [file.buffer]);
            answer.textContent = "";
        } catch (error) {
            tab.close();
            answer.textContent = error.message;
        }
        button.disabled = !navigator.onLine;
    });

    async function load(address) {
        const response = await fetch(address);
        if (!response.ok) {
            throw new Error(await response.text());
        }
        const name = response.headers.get("Content-Disposition").split("''")[1];
        return {buffer: await response.arrayBuffer(), fileName: decodeURIComponent(name)};
    }

    function untilReady(tab, {origin, host}) {
        return new Promise((resolve, reject) => {
            const since = performance.now();
            const stop = () => { clearInterval(timer); removeEventListener("message", onMessage); };
            const onMessage = (event) => {
                if (event.source === tab && event.origin === origin && event.data === "PONG") {
                    stop();
                    resolve();
                }
            };
            const timer = setInterval(() => {
                if (tab.closed || performance.now() - since > ANSWER_MS) {
                    stop();
                    reject(new Error(`${host} does not answer. Save the file, and open it there later.`));
                } else {
                    tab.postMessage("PING", origin);
                }
            }, PING_MS);
            addEventListener("message", onMessage);
        });
    }

    // Without a network the button is disabled.
    const showNetwork = () => {
        document.querySelectorAll("button[data-perfetto]").forEach((button) => { button.disabled = !navigator.onLine; });
    };
    document.addEventListener("toggle", showNetwork, true);
    addEventListener("online", showNetwork);
    addEventListener("offline", showNetwork);
}
