// Actions of a page without a request to the server: copy a link to this view, change the step with [ and ], use arrow keys in
// the list of runs.

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
