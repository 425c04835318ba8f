// Sends the order of a profile to the collector. The browser adds the password, which must be the full token.

document.addEventListener("click", async ({target}) => {
    const button = target.closest?.("button[data-order]");
    if (!button) {
        return;
    }
    const answer = button.parentElement.querySelector(".order-answer");
    button.disabled = true;
    answer.textContent = "requesting …";
    try {
        const headers = {"Content-Type": "application/json"};
        const response = await fetch("v1/profiles", {method: "POST", headers, body: button.dataset.order});
        const body = await response.json();
        answer.textContent = response.ok
            ? "Requested. A link to the file appears here when the file is stored."
            : `${body.error}. Hint: ${body.hint}`;
        button.disabled = response.ok;
    } catch {
        answer.textContent = "The collector does not answer.";
        button.disabled = false;
    }
});
