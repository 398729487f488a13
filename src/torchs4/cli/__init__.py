"""The command `s4`: train, evaluate and compare models, get data."""

from torchs4.cli.main import main

__all__ = ["main"]
