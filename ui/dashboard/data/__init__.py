"""The queries of the dashboard.

``core.py`` queries and caches what several pages need. A module beside it holds the queries that two or more pages
share; the queries of a single page are in the folder of that page. They are functions that take :class:`Reads`.
"""

from ui.dashboard.data.core import Reads

__all__ = ["Reads"]
