"""Each task of docs/guides/tasks.md takes at most three clicks, and these clicks lead to what it asks for."""

import socket
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.browser.task_runs import GRIDS, TaskRuns, serving_task_runs
from tests.browser.tasks import GUIDE, MOST_CLICKS, TASKS, clicks_of_tasks, perform

pytestmark = pytest.mark.browser

CLICKS = clicks_of_tasks(GUIDE.read_text())
IN_SUITE = ("Why was a step long?", "The findings of last week")
"""Tasks whose views no other test of the suite opens in a browser."""


@pytest.fixture(scope="module", params=[8, *(pytest.param(size, marks=pytest.mark.long) for size in GRIDS if size > 8)])
def served(request: pytest.FixtureRequest, site: socket.socket) -> Iterator[tuple[str, TaskRuns]]:
    with serving_task_runs(request.param, site) as served:
        yield served


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "title", [title if title in IN_SUITE else pytest.param(title, marks=pytest.mark.long) for title in TASKS]
)
def test_clicks_of_the_guide_lead_to_what_the_task_asks_for(
    page: Page, served: tuple[str, TaskRuns], title: str
) -> None:
    perform(page, served[0], TASKS[title], CLICKS[title], served[1])


def test_guide_has_every_task_with_at_most_three_clicks() -> None:
    assert [*CLICKS] == [*TASKS]
    assert all(1 <= len(clicks) <= MOST_CLICKS for clicks in CLICKS.values())
    rows = dict(zip(TASKS, (len(clicks) for clicks in CLICKS.values()), strict=True))
    text = GUIDE.read_text()
    assert all(f"| [{title}](" in text for title in rows)
    assert [int(row.rsplit("|", 2)[1]) for row in text.splitlines() if row.startswith("| [")] == [*rows.values()]
