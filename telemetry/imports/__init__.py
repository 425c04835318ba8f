"""Imports traces of other tools as runs: one file for each format, and one that writes."""
