"""What a fitted forecaster tells of itself: its errors, where forecasts come from, its spikes, and what they cost."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from sswim.contributions import contributions
from sswim.data.future import Future
from sswim.data.series import Breaks, SeriesLike
from sswim.estimator import Estimator
from sswim.evaluate.costs import Costs
from sswim.evaluate.metrics import Evaluation
from sswim.forecasts import ForecastModel
from sswim.profiles import bits_of
from sswim.recordings import Recording, record_windows
from sswim.report import Summary

__all__ = ["InspectableForecaster"]


class InspectableForecaster(Estimator[ForecastModel]):
    """The part of a forecaster that looks at what was fitted."""

    def contributions(self, X: SeriesLike, future: Future = None) -> pd.DataFrame | list[pd.DataFrame]:
        """Return how much each source adds to the forecast that `predict` returns, in the data's own units.

        For a direct readout. The sources are the ``"level"`` of the window, its ``"last value"``, the channel's ``"own lags"``,
        ``"single neurons"`` of its populations, ``"sampled neurons"``, ``"covariates"``, covariates ``"known ahead"``,
        the ``"calendar"``, ``"other channels"``, a ``"constant"``, and what the ``"floor"`` adds to values below it.

        Returns
        -------
        DataFrame, or a list of them for several series
            A row for each step ahead and channel, a column for each source. The sum of a row is the forecast.
        """
        check_is_fitted(self)
        return contributions(self.model_, X, future)

    def simulate(self, X: SeriesLike, *, breaks: Breaks = None, potentials: bool = False) -> Recording:
        """Return the spikes of the sampled neurons in every window of `X`, and their membrane potentials if asked for.

        The arrays have the shape (windows, channels, steps, neurons), or (windows, steps, neurons) with ``channels="joint"``.
        Take the last `window` rows of a series to see one window. What does not fit into `memory` is refused.
        """
        check_is_fitted(self)
        return record_windows(self.model_, X, breaks, potentials=potentials)

    def predict_windows(self, X: SeriesLike, *, breaks: Breaks = None) -> np.ndarray:
        """Forecast from every window of `X` whose horizon lies in it too, for back-testing.

        Returns
        -------
        array of shape (windows, horizon, channels), in the data's own units
        """
        check_is_fitted(self)
        return np.concatenate([forecast for _, forecast in self.model_.backtest(X, breaks)])

    def evaluate(self, X: SeriesLike, *, breaks: Breaks = None) -> Evaluation:
        """Return the errors of the forecasts from every window of `X`: overall, per step ahead, and per channel.

        With a direct readout also the part of the values that lie within the 90 % intervals.
        """
        check_is_fitted(self)
        return self.model_.evaluate(X, breaks)

    def costs(self, X: SeriesLike, *, breaks: Breaks = None, bits: int | None = None, sparse: bool = False) -> Costs:
        """Return spikes, operations, bits and energy of a forecast of one channel, averaged over windows of `X`.

        `bits` are those of a weight. Default: those of the `profile`, else 32, or 64 with float64. With `sparse`, weights of 0
        cost no operations.
        """
        check_is_fitted(self)
        chosen = bits_of(self.profile) if bits is None else bits
        return self.model_.costs(X, breaks, bits=chosen, sparse=sparse)

    def score(self, X: SeriesLike, y: object = None) -> float:
        """Return 1 - RSE^2 over every window of `X`: 1 is perfect, 0 is as good as knowing the mean.

        Where nothing moves, the score is 1 for forecasts without an error and 0 for others, as in scikit-learn.
        """
        found = self.evaluate(X)
        return float(found.rmse == 0) if np.isnan(found.rse) else 1 - found.rse**2

    def summary(self) -> Summary:
        """Return what was fitted and how: print it for a table, or take `to_dict()` of it."""
        check_is_fitted(self)
        return self.model_.summary()
