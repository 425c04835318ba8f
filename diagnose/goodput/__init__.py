"""Goodput: the share of a run's wall time in which it did work that it did not have to repeat.

stored.py --> records.py --> ledger.py --> records.py          commands, pages
queries       facts          pure          ledger, incidents
                              |  lives.py      each attempt on the timeline of its run
                              |  stops.py      when and why each attempt stopped
                              |  decisions.py  names of the driver's decisions
                              '- timeline.py   wall time without gaps and overlaps

share.py      the same figure from sums, for many runs at once: list of runs, metric
"""
