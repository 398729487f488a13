"""Datasets: one module each."""
