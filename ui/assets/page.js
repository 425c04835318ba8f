// What a page does without asking the server: copy a link to exactly this view, step with [ and ].

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

// The clipboard is closed to pages served without TLS from another machine: there an old way still works.
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
