// Edit the tags of a run, or write a note about it. A dialog asks for the name of the person (action_dialog.js).

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

    function writeNote(run_id) {
        const text = element("textarea", { name: "text", maxLength: 1000, rows: 3, required: true });
        openDialog({
            title: `Note about ${run_id}`,
            path: PATH,
            labels: [labelled("Note", text)],
            bodies: () => [{ kind: "note", run_id, text: text.value }],
        });
    }

    document.addEventListener("click", ({ target }) => {
        const { tags, note } = target.closest?.("button")?.dataset ?? {};
        if (tags) {
            editTags(JSON.parse(tags));
        } else if (note) {
            writeNote(note);
        }
    });
})();
