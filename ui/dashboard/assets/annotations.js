// Edit the tags of a run. A dialog asks for the name of the person (action_dialog.js).

(() => {
    const { element, labelled, openDialog } = window.rankscope;
    const PATH = "v1/annotations";

    function words(text) {
        return [...new Set(text.split(/[\s,]+/).filter(Boolean))];
    }

    // Only changed tags are sent. So a tag that another person added meanwhile stays.
    function editTags({ run_id, tags }) {
        const input = element("textarea", { name: "tags", rows: 2, value: tags.join(" "), placeholder: "baseline driver-560" });
        openDialog({
            title: `Tags of ${run_id}`,
            path: PATH,
            labels: [labelled("Tags: one word each, separated by spaces", input)],
            bodies() {
                const wanted = words(input.value);
                const edits = [
                    ...tags.filter((tag) => !wanted.includes(tag)).map((name) => ({ edit: "remove", name })),
                    ...wanted.filter((tag) => !tags.includes(tag)).map((name) => ({ edit: "set", name })),
                ];
                return edits.map((edit) => ({ kind: "tag", run_id, ...edit }));
            },
        });
    }

    document.addEventListener("click", ({ target }) => {
        const button = target.closest?.("button[data-tags]");
        if (button) {
            editTags(JSON.parse(button.dataset.tags));
        }
    });
})();
