"""The version of rankscope: pyproject.toml, ``rankscope.__version__`` and ``rankscope --version`` read it here."""

__version__ = "0.1.0"
