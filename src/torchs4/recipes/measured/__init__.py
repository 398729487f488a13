"""Summaries of runs whose accuracies `s4 list` shows."""
