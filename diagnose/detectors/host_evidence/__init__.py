"""Metrics and events of hosts, in a form that detectors can query.

series.py     one device over a period; events; causes and next steps    host-contention
grid.py       all hosts on one time grid; the metrics compared           unlike-host
"""
