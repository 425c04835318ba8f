"""What hosts say beside the spans: their series and events, put in a form in which detectors may ask them.

series.py     one device over a stretch of time: growth, levels          host-contention
events.py     who takes cores or memory, and how long ranks were stopped     "
causes.py     why a rank was kept off its cores, and what to do              "
grid.py       all hosts on one grid of time                              unlike-host
features.py   what hosts are compared by                                     "
"""
