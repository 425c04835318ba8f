// The SQL page: sends the query to the server and shows its rows. A button of a page's query puts it into the field.

{
    const element = (name) => document.querySelector(name);

    document.addEventListener("click", ({target}) => {
        const button = target.closest?.("button[data-sql]");
        if (button?.dataset.sql === "run") {
            run();
        } else if (button) {
            fill(button.dataset.text);
        }
    });

    document.addEventListener("keydown", (event) => {
        if (event.target.id === "sql-text" && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            run();
        }
    });

    // React keeps the text of the field, and notices only what looks like an input of the user.
    function fill(text) {
        const field = element("#sql-text");
        Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set.call(field, text);
        field.dispatchEvent(new Event("input", {bubbles: true}));
        field.focus();
    }

    async function run() {
        const [button, state, rows] = ["button[data-sql=run]", ".sql-state", ".sql-rows"].map(element);
        if (button.disabled) {
            return;
        }
        button.disabled = true;
        state.textContent = "running …";
        rows.replaceChildren();
        try {
            const body = JSON.stringify({sql: element("#sql-text").value});
            const response = await fetch("sql", {method: "POST", headers: {"Content-Type": "application/json"}, body});
            const found = await response.json();
            state.textContent = response.ok ? summary(found) : `${found.error}. Hint: ${found.hint}`;
            if (response.ok) {
                rows.replaceChildren(table(found));
            }
        } catch {
            state.textContent = "The server does not answer.";
        }
        button.disabled = false;
    }

    function summary({rows, is_cut: isCut, seconds}) {
        const count = `${rows.length.toLocaleString("en")} ${rows.length === 1 ? "row" : "rows"}`;
        return `${isCut ? `the first ${count}` : count}, ${seconds} s`;
    }

    function table({columns, rows}) {
        const made = document.createElement("table");
        const head = made.createTHead().insertRow();
        columns.forEach(({name, type}) => {
            const cell = document.createElement("th");
            [cell.scope, cell.textContent, cell.title] = ["col", name, type];
            head.append(cell);
        });
        const body = made.createTBody();
        rows.forEach((row) => {
            const line = body.insertRow();
            row.forEach((value) => { line.insertCell().textContent = value ?? "NULL"; });
        });
        return made;
    }
}
