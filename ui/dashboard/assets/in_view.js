// Scrolls to the selected suspect of a heat map that has just been opened: below many hosts, its row is not on the screen.

Object.assign(window.dash_clientside.rankscope, (() => {
    const [EVERY_MS, MOST_TRIES] = [100, 100];

    // The ranks in a label such as "rank 5 · gpu-000 · dp1 pp0": host and position have numbers, too.
    function namedRanks(text) {
        return text.split(" · ")[0].match(/\d+/g) ?? [];
    }

    // The label of the row of `rank`. If several suspects share a label: the label of the first suspect.
    function labelOf(rank) {
        const labels = [...document.querySelectorAll('main [id*="cells"] .ytick text')];
        const suspects = labels.filter(({textContent}) => textContent.includes("suspect"));
        return suspects.find(({textContent}) => namedRanks(textContent).includes(rank)) ?? suspects[0];
    }

    // Waits until all parts are drawn. Stops if the user scrolls, or changes the address.
    function scrollTo(rank, search, scrolled, tries) {
        if (location.search !== search || window.scrollY !== scrolled || tries === 0) {
            return;
        }
        const label = document.querySelector("main .loading, main .waiting") ? null : labelOf(rank);
        if (!label) {
            setTimeout(() => scrollTo(rank, search, scrolled, tries - 1), EVERY_MS);
            return;
        }
        const {top, bottom} = label.getBoundingClientRect();
        if (top < 0 || bottom > window.innerHeight) {
            label.scrollIntoView({block: "center"});
        }
    }

    // Called when another page is shown.
    function showSuspect() {
        const fields = new URLSearchParams(location.search);
        if (fields.get("view") === "heatmap" && fields.get("rank")) {
            scrollTo(fields.get("rank"), location.search, window.scrollY, MOST_TRIES);
        }
    }

    return {showSuspect};
})());
