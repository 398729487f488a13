"""Training: so far, how an optimiser should treat the parameters."""

from torchs4.training.parameter_groups import parameter_groups

__all__ = ["parameter_groups"]
