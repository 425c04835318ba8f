// Charts with a common x axis follow each other: a zoom of one is a zoom of all, and the pointer on one shows the values of all
// at this place. They are the charts inside one element of the class "linked".

(() => {
    const SUBPLOT = "xy"; // the curve, not the strip of events

    const isShown = (plot) => plot._fullLayout?.xaxis && !plot.closest(".hidden, .waiting");

    function others(plot) {
        const plots = plot.closest(".linked")?.querySelectorAll(".js-plotly-plot") ?? [];
        const type = plot._fullLayout.xaxis.type;
        return [...plots].filter((each) => each !== plot && isShown(each) && each._fullLayout.xaxis.type === type);
    }

    // The part of a change that concerns the x axis. Null: it does not.
    function changeOfX(change) {
        const [first, last] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        if (first !== undefined && last !== undefined) {
            return { "xaxis.range": [first, last] };
        }
        return change["xaxis.autorange"] ? { "xaxis.autorange": true } : null;
    }

    // Plotly keeps a zoom when the server draws the chart again only if it counts as an action of the user.
    function relayout(plot, change) {
        plot.isFollowing = true;
        plot._fullLayout._guiEditing = true;
        const done = window.Plotly.relayout(plot, change);
        plot._fullLayout._guiEditing = false;
        done.finally(() => { plot.isFollowing = false; });
    }

    function zoomOthers(plot, change) {
        const ofX = !plot.isFollowing && changeOfX(change);
        if (ofX) {
            others(plot).forEach((each) => relayout(each, ofX));
        }
    }

    function pointOthers(plot, { xvals }) {
        if (!plot.isFollowing && xvals?.length) {
            others(plot).forEach((each) => window.Plotly.Fx.hover(each, { xval: xvals[0] }, SUBPLOT, true));
        }
    }

    // Listeners are added when the pointer enters a chart.
    document.addEventListener("mouseover", (event) => {
        const plot = event.target.closest?.(".linked .js-plotly-plot");
        if (plot?.on && !plot.isLinked) {
            plot.isLinked = true;
            plot.on("plotly_relayout", (change) => zoomOthers(plot, change));
            plot.on("plotly_hover", (data) => pointOthers(plot, data));
            plot.on("plotly_unhover", () => others(plot).forEach((each) => window.Plotly.Fx.unhover(each)));
        }
    });
})();
