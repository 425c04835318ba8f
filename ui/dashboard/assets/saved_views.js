// The menu of saved views: save the view that is open, remove a saved one, and close the menu.

(() => {
    const { element, labelled, openDialog } = window.rankscope;
    const PATH = "v1/annotations";

    // The address as the collector accepts it: from its ? on, and without the run if the view is of all runs.
    function addressOf(run_id) {
        const fields = new URLSearchParams(location.search);
        if (!run_id) {
            fields.delete("run");
            fields.delete("attempt");
        }
        return `?${fields}`;
    }

    function saveView(run_id) {
        const name = element("input", { name: "name", required: true, maxLength: 64 });
        const choices = [...(run_id ? [[`this run: ${run_id}`, run_id]] : []), ["all runs", ""]];
        const options = choices.map(([text, value]) => element("option", { textContent: text, value }));
        const run = element("select", { name: "run" }, options);
        openDialog({
            title: "Save this view",
            path: PATH,
            labels: [labelled("Name of the view", name), labelled("For", run)],
            bodies: () => [{ kind: "view", run_id: run.value, name: name.value, text: addressOf(run.value) }],
        });
    }

    function removeView({ run_id, name }) {
        openDialog({
            title: `Remove the view “${name}”`,
            path: PATH,
            labels: [],
            bodies: () => [{ kind: "view", edit: "remove", run_id, name }],
        });
    }

    function closeMenu() {
        document.querySelector(".views-menu[open]")?.removeAttribute("open");
    }

    document.addEventListener("click", ({ target }) => {
        const button = target.closest?.("button");
        if (!target.closest?.(".views-menu") || button || target.closest("a")) {
            closeMenu();
        }
        if (button?.dataset.saveView !== undefined) {
            saveView(button.dataset.saveView);
        } else if (button?.dataset.removeView) {
            removeView(JSON.parse(button.dataset.removeView));
        }
    });

    document.addEventListener("keydown", ({ key }) => {
        if (key === "Escape") {
            closeMenu();
        }
    });
})();
