"""The only part of the dashboard that queries.

``core.py`` asks, and keeps the newest answers; a page's own questions stand in a module beside it, named after the
page, as functions that take :class:`Reads`.
"""

from ui.dashboard.data.core import Reads

__all__ = ["Reads"]
