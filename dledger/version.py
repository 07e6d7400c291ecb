"""The version of all packages: they are released together."""

__version__ = "0.1.0"
