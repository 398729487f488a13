"""scikit-learn's conventions for sequences: `fit(X, y)`, `predict(X)`, and what else its users expect."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchs4.estimators.backtest import Backtest
    from torchs4.estimators.classifier import S4Classifier
    from torchs4.estimators.forecaster import S4Forecaster
    from torchs4.estimators.regressor import S4Regressor
    from torchs4.estimators.saving import load_estimator

__all__ = ["Backtest", "S4Classifier", "S4Forecaster", "S4Regressor", "load_estimator"]

# Where each lives; they are imported when they are first used, and need packages that other parts do not.
_HOMES = {
    "Backtest": "torchs4.estimators.backtest",
    "S4Forecaster": "torchs4.estimators.forecaster",
    "S4Classifier": "torchs4.estimators.classifier",
    "S4Regressor": "torchs4.estimators.regressor",
    "load_estimator": "torchs4.estimators.saving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'torchs4.estimators' has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f'{name} needs {error.name}. Install it with: pip install "torchs4[estimators]"'
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
