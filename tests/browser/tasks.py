"""The tasks of docs/guides/tasks.md: clicks what the guide says, and checks what is then on the screen.

python -m tests.browser.tasks --ranks 12288 --out pictures

prints the clicks and seconds of each task with runs of 8, 2,048 or 12,288 ranks, and takes a picture of each.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator, Page, Request, expect, sync_playwright

from tests.browser.conftest import FLAGS
from tests.browser.on_page import region, wait_until_drawn
from tests.browser.task_runs import BEFORE, DAY, GRIDS, SLOW, STUCK, TaskRuns, serving_task_runs
from tests.parts import CHROMIUM, require

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "tasks.md"
MOST_CLICKS = 3
LOADED_MS = 300_000
EVERY_MS, QUIET_TIMES = 100, 3
WINDOW = {"width": 1440, "height": 900}
RUN, OTHER_RUN = "the name of the run", "the other run"
"""What the guide calls a link or choice whose name is that of a run."""
DAY_OF_LOSS = """() => {
    const plot = document.querySelector('[id*=loss] .js-plotly-plot');
    const [first, last] = plot._fullLayout.xaxis.range.map((time) => Date.parse(time));
    return plot._fullLayout.xaxis.type === 'date' && last - first > 20 * 3600e3;
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of the guide. ``start``: the view on which it starts. ``shows``: checks what its clicks lead to."""

    picture: str
    start: str
    shows: Callable[[Page, TaskRuns], None]
    run: str = SLOW


def shows(name: str, pattern: str) -> Callable[[Page, TaskRuns], None]:
    """A region with a text. The fields of ``TaskRuns`` can stand in ``pattern``."""

    def check(page: Page, runs: TaskRuns) -> None:
        expected = pattern.format(rank=runs.rank, host=runs.flapping_host, onset=runs.onset)
        expect(region(page, name)).to_contain_text(re.compile(expected, re.DOTALL))

    return check


def _heat_map_at_the_onset(page: Page, runs: TaskRuns) -> None:
    shows("heat-says", "slowest is rank {rank} ")(page, runs)
    expect(page.locator('[id*="cells"] .ytick text').filter(has_text="suspect").first).to_be_visible()


def _copied(page: Page, runs: TaskRuns) -> None:
    expect(page.get_by_role("button", name="Copied")).to_be_visible()


def _day_of_loss(page: Page, runs: TaskRuns) -> None:
    page.wait_for_function(DAY_OF_LOSS)


def _downloaded(page: Page, runs: TaskRuns) -> None:
    """The click has already stored the file: see :func:`click`."""


TASKS = {
    "Which rank is slow?": Task(
        picture="slow-rank",
        start="?view=runs",
        shows=shows("verdict", r"rank {rank} \(host gpu-.*compute takes 1\."),
    ),
    "Since when is it slow?": Task(picture="since-when", start="?run={run}", shows=_heat_map_at_the_onset),
    "Is it compute or the network?": Task(
        picture="compute-or-network", start="?run={run}", shows=shows("details", "compute %.*▶ {rank}")
    ),
    "Which host must be drained?": Task(
        picture="host", start="?run={run}", run=BEFORE, shows=shows("fleet-title", "{host}: ranks .* fault event")
    ),
    "Why was a step long?": Task(
        picture="long-step", start="?run={run}", shows=shows("two-steps-says", "a typical step.*B takes .* longer")
    ),
    "What is the bubble of a group?": Task(
        picture="bubble", start="?run={run}", shows=shows("details", "Bubble: .*Measured .*in theory")
    ),
    "Which rank is stuck, and who waits?": Task(
        picture="stuck", start="?view=runs", run=STUCK, shows=shows("hang-verdict", "rank {rank} is behind")
    ),
    "Is this run slower than another one?": Task(
        picture="two-runs", start="?run={run}", shows=shows("compare-says", "slower than A.*rank {rank} ")
    ),
    "How does a step differ from a typical one?": Task(
        picture="typical-step",
        start="?view=timeline&run={run}&step=20&rank={rank}",
        shows=shows("two-steps-says", "Step 20 of B takes .*a typical step"),
    ),
    "Share what is on the screen": Task(picture="share", start="?run={run}", shows=_copied),
    "The loss over a day": Task(picture="loss", start="?run={run}", run=DAY, shows=_day_of_loss),
    "The findings of last week": Task(
        picture="findings", start="?view=runs", run=BEFORE, shows=shows("log", "2 findings.*link lost .*{host}")
    ),
    "Acknowledge an alert": Task(picture="acknowledge", start="?view=alerts", shows=shows("firing", "acknowledged")),
    "Export a trace": Task(picture="export", start="?run={run}", shows=_downloaded),
    "From an alert to its page": Task(picture="alert", start="?view=alerts", shows=shows("verdict", "rank {rank} ")),
}


def clicks_of_tasks(text: str) -> dict[str, list[str]]:
    """Title of a section of the guide -> names of what is clicked, in order."""
    sections = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {title: re.findall(r"^\d+\. Click \*\*(.+?)\*\*", body, re.MULTILINE) for title, body in sections}


class Pending:
    """The requests of a page that are not answered yet."""

    def __init__(self, page: Page) -> None:
        self._requests: set[Request] = set()
        page.on("request", lambda request: self._requests.add(request))
        page.on("requestfinished", lambda request: self._requests.discard(request))
        page.on("requestfailed", lambda request: self._requests.discard(request))

    def wait(self, page: Page) -> None:
        """Return once all requests are answered, also those that answers lead to."""
        deadline_s, quiet = time.monotonic() + LOADED_MS / 1e3, 0
        while quiet < QUIET_TIMES:
            assert time.monotonic() < deadline_s, f"no answer: {[request.url for request in self._requests]}"
            page.wait_for_timeout(EVERY_MS)
            quiet = 0 if self._requests else quiet + 1


def perform(page: Page, address: str, task: Task, clicks: list[str], runs: TaskRuns) -> None:
    """Open the page on which a task starts, click, and check what is then on the screen."""
    pending = Pending(page)
    page.goto(f"{address.rstrip('/')}/{task.start.format(run=task.run, rank=runs.rank)}")
    settle(page, pending)
    for name in clicks:
        click(page, {RUN: task.run, OTHER_RUN: f"{BEFORE}/0"}.get(name, name))
        settle(page, pending)
    task.shows(page, runs)


def click(page: Page, name: str) -> None:
    """Click the first visible link, button, choice or field of this name."""
    if name == "Send":
        page.get_by_label("Your name").fill("Ada")
    if name == "Chrome JSON":
        with page.expect_download() as download:
            named(page, name).click()
        assert download.value.path().stat().st_size > 0
        return
    named(page, name).click()


def named(page: Page, name: str) -> Locator:
    found = page.get_by_role("option", name=name, exact=True)
    for role in ("link", "button"):
        found = found.or_(page.get_by_role(role, name=name, exact=True))  # type: ignore[arg-type]
    labels = page.locator("main label, main summary").filter(has_text=re.compile(f"^{re.escape(name)}$"))
    fields = page.get_by_role("textbox", name=name, exact=True)
    return found.or_(labels).or_(fields).locator("visible=true").first


def settle(page: Page, pending: Pending) -> None:
    """Return once the page is drawn, its links follow the address, and the detectors are ready."""
    pending.wait(page)
    wait_until_drawn(page, timeout_ms=LOADED_MS)
    expect(page.locator("main .looking")).to_have_count(0, timeout=LOADED_MS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, choices=GRIDS, default=8)
    parser.add_argument("--out", type=Path, help="folder of the pictures")
    parser.add_argument("--only", default="", help="tasks with this in their titles")
    given = parser.parse_args()
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
    clicks, failed = clicks_of_tasks(GUIDE.read_text()), 0
    expect.set_options(timeout=LOADED_MS)
    with serving_task_runs(given.ranks) as (address, runs), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require(CHROMIUM), args=FLAGS)
        for title, task in TASKS.items():
            if given.only not in title:
                continue
            page, began_s = browser.new_page(viewport=WINDOW), time.perf_counter()  # type: ignore[arg-type]
            page.set_default_timeout(LOADED_MS)
            try:
                perform(page, address, task, clicks[title], runs)
                result = "ok"
            except Exception as error:  # the other tasks still run
                failed, result = failed + 1, f"FAILED: {error}"
            print(f"{title}: {len(clicks[title])} clicks, {time.perf_counter() - began_s:.1f} s: {result}", flush=True)
            if given.out:
                page.screenshot(path=given.out / f"task-{task.picture}.png")
            page.close()
        browser.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
