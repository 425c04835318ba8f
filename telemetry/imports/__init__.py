"""Imports traces of other tools as runs: a module for each format, and ``write``, which stores a run."""
