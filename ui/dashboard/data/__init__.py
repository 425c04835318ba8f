"""The queries of the dashboard.

``core.py`` has ``Reads``: cached queries that several pages need. Functions in the other modules take a ``Reads``. The
queries of a single page are in the folder of that page.
"""

from ui.dashboard.data.core import Reads

__all__ = ["Reads"]
