// Faults of the layout of the open page: texts that are clipped, texts that overlap, axes without a unit, and a page or a part
// of it that is wider than its place. Returns a list of sentences.
//
//   boxes of text -> without parts that scroll out of sight -> outside of what clips them?  -> "is clipped"
//                                                          -> two that share pixels        -> "overlaps"

() => {
    const [SLACK_PX, SHARED_PX] = [1.5, 2];
    const INK = 0.62; // the part of the height of a line that letters fill
    const SILENT = ".hoverlayer, .mantine-VisuallyHidden-root, .span-timeline-spoken, .skip, option, script, style, [hidden]";
    const main = document.querySelector("main");
    const faults = [];

    const clips = (value) => value === "hidden" || value === "clip";
    const scrolls = (value) => value === "auto" || value === "scroll";
    const short = (text) => (text.length > 48 ? `${text.slice(0, 47)}…` : text);

    const nameOf = (element) => element.getAttribute("class") || element.tagName.toLowerCase();

    function isVisible(element) {
        return element.checkVisibility({opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true})
            && !element.closest(SILENT);
    }

    // Boxes of the letters of an element's own text, one for each line.
    function boxesOf(element) {
        if (element instanceof SVGElement) {
            const lines = [...element.querySelectorAll("tspan.line")].filter((line) => line.textContent.trim());
            return (lines.length ? lines : [element]).map((line) => lettersOf(line.getBoundingClientRect(), isUpright(element)));
        }
        return [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()).flatMap((node) => {
            const range = document.createRange();
            range.selectNodeContents(node);
            return [...range.getClientRects()].map((box) => lettersOf(box, false));
        }).filter(({left, right}) => right - left > 1);
    }

    // The part of a line that letters fill. `isUpright`: whether the line goes up or down.
    function lettersOf({left, right, top, bottom}, isUpright) {
        const spare = ((isUpright ? right - left : bottom - top) * (1 - INK)) / 2;
        const [across, down] = isUpright ? [spare, 0] : [0, spare];
        return {left: left + across, right: right - across, top: top + down, bottom: bottom - down};
    }

    // The part of a box that can be seen or scrolled into view, and the element that clips it, if one does.
    function seenPart(box, element) {
        let [seen, by] = [{...box}, null];
        for (let parent = element; parent && parent !== document.body; parent = parent.parentElement) {
            const {overflowX, overflowY} = getComputedStyle(parent);
            if (!(clips(overflowX) || clips(overflowY) || scrolls(overflowX) || scrolls(overflowY))) {
                continue;
            }
            const edge = parent.getBoundingClientRect();
            if (clips(overflowX) && (seen.left < edge.left - SLACK_PX || seen.right > edge.right + SLACK_PX)) {
                by ??= parent;
            }
            if (clips(overflowY) && (seen.top < edge.top - SLACK_PX || seen.bottom > edge.bottom + SLACK_PX)) {
                by ??= parent;
            }
            seen = {
                left: Math.max(seen.left, edge.left), right: Math.min(seen.right, edge.right),
                top: Math.max(seen.top, edge.top), bottom: Math.min(seen.bottom, edge.bottom),
            };
        }
        return {seen, by};
    }

    function textsOf(root) {
        const found = [];
        for (const element of root.querySelectorAll("*")) {
            const isSvg = element instanceof SVGElement;
            const text = isSvg ? (element.tagName === "text" ? element.textContent.trim() : "") : ownText(element);
            if (!text || (isSvg && isSlanted(element)) || !isVisible(element)) {
                continue;
            }
            for (const box of boxesOf(element)) {
                found.push({element, text, box, ...seenPart(box, element)});
            }
        }
        return found;
    }

    function ownText(element) {
        return [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map(({data}) => data.trim()).join(" ").trim();
    }

    function isUpright(element) {
        return Math.abs(element.getScreenCTM()?.b ?? 0) > 0.95;
    }

    function isSlanted(element) {
        const {a, b} = element.getScreenCTM() ?? {a: 1, b: 0};
        return Math.abs(a) > 0.05 && Math.abs(b) > 0.05;
    }

    function overlap(a, b) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        return across > SHARED_PX && down > SHARED_PX;
    }

    function isBeside(a, b) {
        return a.element !== b.element && !isOver(a.element, b.element) && !isOver(b.element, a.element);
    }

    // A menu or a dialog may cover the page.
    function isOver(element, other) {
        const layer = element.closest(".views-list, dialog, .span-timeline-help, .span-timeline-tooltip");
        return Boolean(layer) && !layer.contains(other);
    }

    const texts = textsOf(document.body);
    for (const {text, by} of texts) {
        if (by) {
            faults.push(`"${short(text)}" is clipped by ${nameOf(by)}`);
        }
    }
    const visible = texts.filter(({seen}) => seen.right - seen.left > SHARED_PX && seen.bottom - seen.top > SHARED_PX)
        .sort((a, b) => a.seen.top - b.seen.top);
    visible.forEach((one, at) => {
        for (let next = at + 1; next < visible.length && visible[next].seen.top < one.seen.bottom; next += 1) {
            if (overlap(one.seen, visible[next].seen) && isBeside(one, visible[next])) {
                faults.push(`"${short(one.text)}" overlaps "${short(visible[next].text)}"`);
            }
        }
    });

    for (const element of document.querySelectorAll(".header nav, .wide, .mantine-TableScrollContainer-scrollContainer, .hosts-table")) {
        if (element.scrollWidth > element.clientWidth + SLACK_PX && element.checkVisibility()) {
            const hidden = element.scrollWidth - element.clientWidth;
            faults.push(`${nameOf(element)} hides ${hidden} px on its right`);
        }
    }

    const page = document.scrollingElement;
    if (page.scrollWidth > window.innerWidth + SLACK_PX) {
        faults.push(`the page is ${page.scrollWidth} px wide in a window of ${window.innerWidth} px`);
    }

    // Axes and colour bars with numbers need a title with a unit or a name.
    for (const plot of main.querySelectorAll(".panel:not(.hidden) .js-plotly-plot")) {
        const layout = plot._fullLayout;
        for (const [name, axis] of Object.entries(layout).filter(([name]) => /^[xy]axis\d*$/.test(name))) {
            const isNumeric = axis.type === "linear" && axis.visible && axis.showticklabels && !axis.tickvals;
            const isShared = axis.matches || axis.overlaying;
            if (isNumeric && !axis.title?.text && !axis.ticksuffix && !isShared) {
                faults.push(`${plot.parentElement.parentElement.id || plot.closest("[aria-label]")?.ariaLabel}: ${name} has no title`);
            }
        }
    }

    for (const {timeline, parentElement} of main.querySelectorAll(".panel:not(.hidden) .span-timeline[data-drawn]")) {
        const {texts: drawn = [], width} = timeline.view;
        drawn.forEach((one, at) => {
            const box = ({x, y, width: wide, height}) => ({left: x, right: x + wide, top: y, bottom: y + height});
            if (one.x < 0 || one.x + one.width > width + SLACK_PX) {
                faults.push(`a text of the timeline is outside of it, at ${Math.round(one.x)} px`);
            }
            if (drawn.slice(at + 1).some((other) => overlap(box(one), box(other)))) {
                faults.push(`two texts of the timeline overlap in ${parentElement.id}`);
            }
        });
    }
    return [...new Set(faults)];
}
