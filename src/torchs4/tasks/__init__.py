"""What a model is asked. A task knows what the model has to give, its loss, and how well it does."""

from torchs4.tasks.classification import Classification
from torchs4.tasks.forecast import Forecast, QuantileForecast
from torchs4.tasks.logistic_mixture import LogisticMixture
from torchs4.tasks.metrics import ACCURACY, MAE, MSE, PERPLEXITY, PINBALL, SCALED_MAE, SCALED_MSE, Metric
from torchs4.tasks.next_token import NextToken
from torchs4.tasks.regression import PositionRegression, Regression
from torchs4.tasks.task import Task

__all__ = [
    "ACCURACY",
    "MAE",
    "MSE",
    "PERPLEXITY",
    "PINBALL",
    "SCALED_MAE",
    "SCALED_MSE",
    "Classification",
    "Forecast",
    "LogisticMixture",
    "Metric",
    "NextToken",
    "PositionRegression",
    "QuantileForecast",
    "Regression",
    "Task",
]
