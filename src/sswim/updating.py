"""The methods of fitted estimators that go on: `partial_fit`, `refit` and `merge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from sswim.backtests import CrossValidation, Folds, cross_validate
from sswim.classes import ClassModel
from sswim.data.augment import Augmentation, Change
from sswim.data.series import Breaks, SeriesLike
from sswim.estimator import Estimator
from sswim.forecasts import ForecastModel
from sswim.hidden import Fields, changes_of
from sswim.updates import (
    check_forget,
    merge_samples,
    merge_series,
    refit_samples,
    refit_series,
    update_samples,
    update_series,
)

__all__ = ["UpdatableClassifier", "UpdatableForecaster"]


def _check_other(one: object, other: object) -> None:
    if type(one) is not type(other):
        raise TypeError(f"other must be a fitted {type(one).__name__}, got {type(other).__name__}.")
    check_is_fitted(other)


class UpdatableForecaster(Estimator[ForecastModel]):
    """A forecaster whose output can be solved for again from sums; its hidden layers stay."""

    def partial_fit(self, X: SeriesLike, y: object = None, *, forget: float | None = None, breaks: Breaks = None) -> Self:
        """Go on with rows that follow on those seen so far; an unfitted model is fitted.

        The hidden layers and the scaling of what they see stay. The rows are added to the sums, and the output is solved for
        anew: forecasts are those of `refit` with all rows. What the output reads, and how much, is chosen again whenever there
        are a quarter more blocks in time. Intervals come from the errors that the model made on new rows before it knew them.

        Parameters
        ----------
        X : DataFrame, array of shape (rows, channels), or a list of these
            Times must come after those of the rows so far. If they do not follow right on them, no window crosses the gap. An
            array follows on. Further series of a list begin anew.
        y : ignored
        forget : float, optional
            Half-life in rows: a row counts half as much after this many further rows. Default: all rows count alike.
        breaks : int or sequence of int, optional
            As in `fit`.
        """
        if "model_" not in vars(self):
            return self.fit(X, breaks=breaks)
        half_life, series = check_forget(forget), self.model_.series(X, breaks)
        with self._update() as run:
            self.model_ = update_series(self.model_, series, half_life, run)
        return self

    def refit(self, X: SeriesLike, y: object = None, *, breaks: Breaks = None) -> Self:
        """Solve for the output from these series alone; hidden layers and scaling stay. Copies of a model may do so apart."""
        check_is_fitted(self)
        series = self.model_.series(X, breaks)
        with self._update() as run:
            self.model_ = refit_series(self.model_, series, run)
        return self

    def merge(self, other: Self) -> Self:
        """Add the sums of another model with the same hidden layers, and solve for the output anew.

        Forecasts are those of `refit` with the series of both in a list, if each has at least one block in time.
        """
        check_is_fitted(self)
        _check_other(self, other)
        with self._update() as run:
            self.model_ = merge_series(self.model_, other.model_, run)
        return self

    def cross_validate(
        self,
        X: SeriesLike,
        folds: int = 5,
        *,
        start: float = 0.5,
        train: int | None = None,
        refit: int = 1,
        stride: int | None = None,
    ) -> CrossValidation:
        """Forecast the later part of a series as it would have been done in its time, learning as it went.

        The rows after the first part `start` are cut into test parts. Before each, the output is solved for from the rows
        before it, as `refit` would; but each row is looked at once only. A fitted model keeps its hidden layers; one that is
        not fitted is fitted to the rows before the first test part, and left as it is.

        Parameters
        ----------
        X : DataFrame or array of shape (rows, channels)
        folds : int
            Number of test parts.
        start : float
            Part of the rows before the first test part.
        train : int, optional
            Rows before each test part to learn from, about: whole blocks in time are taken out of the sums. Default: all.
        refit : int
            The output is solved for again before every `refit`-th test part.
        stride : int, optional
            Distance between the forecasts that are returned. Default: the horizon.

        Examples
        --------
        >>> from sswim import Forecaster
        >>> from sswim.datasets import load_wind_farm
        >>> found = Forecaster(24, 6, random_state=0, verbose=0).cross_validate(load_wind_farm().iloc[:2000], folds=4)
        >>> found.folds[["train_last", "test_first", "test_last"]].to_numpy().tolist()
        [[1000, 1000, 1250], [1250, 1250, 1500], [1500, 1500, 1750], [1750, 1750, 2000]]
        """
        cuts, model = Folds(folds, start, train, refit, stride), self
        if "model_" not in vars(self):
            first = X.iloc if hasattr(X, "iloc") else X
            model = clone(self).fit(first[: cuts.origins(len(X))[0]])  # type: ignore[arg-type,index]
        with model._update() as run:
            return cross_validate(model.model_, X, cuts, run)


class UpdatableClassifier(Estimator[ClassModel]):
    """A classifier whose output can be solved for again from sums; its hidden layers stay."""

    augment: Augmentation | Sequence[Augmentation] | None
    fields: Fields

    def partial_fit(
        self, X: object, y: npt.ArrayLike, classes: npt.ArrayLike | None = None, *, forget: float | None = None
    ) -> Self:
        """Go on with new samples of the same classes; an unfitted model is fitted.

        The hidden layers and the scaling of intensities stay. The samples are added to the sums, and the output is solved for
        anew, as `refit` with all samples would. They get changed copies too, as `augment` says.

        Parameters
        ----------
        X : as in `fit`
        y : array of shape (samples,)
            Labels, all of them known.
        classes : array, optional
            All labels, as scikit-learn wants them in a first call. The first samples must hold each of them.
        forget : float, optional
            Half-life in samples: a sample counts half as much after this many further samples. Default: all count alike.
        """
        known = self.model_.classes if "model_" in vars(self) else np.unique(self._flat(y))
        if classes is not None and not np.array_equal(np.unique(self._flat(classes)), known):
            raise ValueError(
                f"classes must be those of the first samples, {known.tolist()}, got {np.unique(classes).tolist()}."
            )
        if "model_" not in vars(self):
            return self.fit(X, y)
        half_life = check_forget(forget)
        with self._update() as run:
            self.model_ = update_samples(self.model_, X, self._flat(y), type(self).__name__, half_life, run, self._changes())
        return self

    def refit(self, X: object, y: npt.ArrayLike) -> Self:
        """Solve for the output from these samples alone; hidden layers stay. Copies of a model may do so apart."""
        check_is_fitted(self)
        with self._update() as run:
            self.model_ = refit_samples(self.model_, X, self._flat(y), type(self).__name__, run, self._changes())
        return self

    def merge(self, other: Self) -> Self:
        """Add the sums of another model with the same hidden layers, and solve for the output anew."""
        check_is_fitted(self)
        _check_other(self, other)
        with self._update() as run:
            self.model_ = merge_samples(self.model_, other.model_, run)
        return self

    def _changes(self) -> tuple[Change, ...]:
        """Return what copies of new samples are changed by."""
        return changes_of(self.augment, self.model_.inputs, self.fields)

    @staticmethod
    def _flat(y: npt.ArrayLike) -> np.ndarray:
        return column_or_1d(y, warn=True)
