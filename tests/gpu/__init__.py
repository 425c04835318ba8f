"""Checks that need a GPU: ``make gpu OUT=DIR`` (``python -m tests.gpu --out DIR``)."""
