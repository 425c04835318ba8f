// Actions of a page without a request to the server: copy a link to this view, change the step with [ and ], use arrow keys in
// the list of runs, go to a tab.

document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-search]");
    if (!button) {
        return;
    }
    const link = location.origin + location.pathname + button.dataset.search;
    copyText(link).then(() => {
        const before = button.textContent;
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = before; }, 1500);
    });
});

// A button with data-fields sets these fields of the address; an empty field is removed. Unlike a link, the page does not scroll.
document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-fields]");
    if (!button) {
        return;
    }
    const fields = new URLSearchParams(location.search);
    new URLSearchParams(button.dataset.fields).forEach((value, name) => (value ? fields.set(name, value) : fields.delete(name)));
    window.dash_clientside.rankscope.follow(`?${fields}`);
});

document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    const target = { "[": ".step-previous", "]": ".step-next" }[event.key];
    if (target && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        document.querySelector(target)?.click();
    }
});

// In the list of runs: / goes to the search field, arrow keys go to the previous or next run.
document.addEventListener("keydown", (event) => {
    const search = document.querySelector("[role=search] input");
    if (!search || event.ctrlKey || event.metaKey || event.altKey) {
        return;
    }
    const links = [...document.querySelectorAll(".run-link")];
    const at = links.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "/" && event.target !== search) {
        event.preventDefault();
        search.select();
    } else if (step && (at >= 0 || event.target === search)) {
        event.preventDefault();
        (links[at + step] ?? (at + step < 0 ? search : links.at(-1)))?.focus();
    }
});

// Browsers give no clipboard API to pages of another machine without TLS. execCommand still works there.
async function copyText(text) {
    if (navigator.clipboard && window.isSecureContext) {
        return navigator.clipboard.writeText(text);
    }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
}

// A tab keeps the address as it is at the click. Its link may be older than the newest choice: the browser writes choices on the
// timeline into the address before the server has drawn the tabs again.
document.addEventListener("click", (event) => {
    const tab = event.target.closest?.(".way a.view-tab");
    const [now, there] = [new URLSearchParams(location.search), new URLSearchParams(tab?.search)];
    if (!there.get("run") || (now.get("run") ?? there.get("run")) !== there.get("run")) {
        return;
    }
    ["view", "run", "attempt"].filter((name) => there.has(name)).forEach((name) => now.set(name, there.get(name)));
    tab.setAttribute("href", `?${now}`);
    if (event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey) {
        event.preventDefault();
        event.stopPropagation();
        window.dash_clientside.rankscope.follow(`?${now}`);
        window.scrollTo(0, 0);
    }
}, { capture: true });
