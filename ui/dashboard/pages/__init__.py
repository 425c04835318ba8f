"""The pages by view.

The page of a view is in the folder with the name of its ``View``, in lower case. Its ``page.py`` defines ``PAGE``.
"""

from importlib import import_module

from ui.dashboard.pages.interface import Page
from ui.dashboard.view_state import View

PAGES: dict[View, Page] = {view: import_module(f"ui.dashboard.pages.{view.name.lower()}.page").PAGE for view in View}
