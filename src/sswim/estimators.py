"""Estimators in the manner of scikit-learn: all mathematics lies beneath, in `sswim.sampling` and `sswim.network`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from sswim import direct_forecasts, trajectory
from sswim._estimator import DTYPES, Estimator
from sswim._forecaster import build_network, check_options
from sswim._scaling import scales
from sswim._series import Series, as_series, continue_index
from sswim._tracking import Tracker
from sswim.encoding import Encoder, find_columns, find_floors
from sswim.kernels import Kernel
from sswim.metrics import Evaluation, ForecastErrors
from sswim.report import SamplingReport, Summary, summarize
from sswim.tuning import tune
from sswim.windows import Windows

__all__ = ["Forecaster"]

ENGINES = {"trajectory": trajectory, "direct": direct_forecasts}
PAPER = {"channels": "joint", "readout": "trajectory", "skip": False, "floor": False}


class Forecaster(Estimator):
    """Forecast a multivariate series with a spiking network that is sampled, not trained by gradients.

    One small network runs along every channel and each step ahead is read with weights of its own; see `Forecaster.paper` for
    the model of the paper.

    Parameters
    ----------
    window, horizon : int
        Rows the model looks at, and rows it forecasts.
    hidden : sequence of int
        One width per hidden layer.
    kernel, deeper_kernel, output_kernel : str or callable
        Kernel of the first hidden layer, of further hidden layers, and of the output layer: ``"hat"``, ``"morlet"``,
        ``"morlet-wide"``, ``"exponential"``, ``"alpha"``, or any callable.
    channels : {"shared", "joint"}
        Whether one small network runs on every channel alike, or all channels enter one network, as in the paper.
    readout : {"direct", "trajectory"}
        Whether separate weights for each step ahead read the hidden layers at the forecast's origin, or an output's voltage
        draws the horizon, as in the paper. With the former, the network runs along the series once instead of once per
        window.
    skip : bool
        Whether the window's own rows reach the output too, so that the spikes only have to explain what a linear model can
        not. Without, the network is purely spiking.
    corrections : int
        With shared channels and a direct readout, number of directions of a channel's features on which its weights may
        differ from the common ones; 0 for none.
    common : int
        In the same case, number of directions of what all channels do together that each channel's forecast may lean on; 0
        for forecasts of each channel from itself alone.
    traces : sequence of float, optional
        With a direct readout, time constants of the spikes' traces in steps.
    temporal, input_metric, deeper_metric, output_metric, pairs, weights, normalizer, delays, supports, regularization
        The steps of the algorithm, by name or as objects; see `sswim.sample` and `sswim.steps`. ``"auto"`` is ``"grid"`` and
        ``"mean-std"``, as in the paper, and with a direct readout ``"spread"`` and ``"diverse"``.
    assembly : {"auto", "fast", "exact"} or Assembly
        Whether the sums over all windows may be thinned out; see `sswim.traces.Assembly`. ``"auto"`` is exact where that
        takes seconds, and fast otherwise.
    blocks : int
        With a direct readout, in how many parts a layer is sampled: the pairs of each differ in what the ones before leave
        unexplained.
    initial_batch : int
        Number of windows that everything but the output weights is computed from.
    validation : float
        Part of the windows, the last ones, on which the regularisation is chosen.
    stride : int
        Use every `stride`-th window for fitting. 1 with a direct readout, which runs along all rows once.
    covariates : sequence
        Columns, by name or number, that are seen but not forecast, such as the hour of the day or the weather. A row's values
        must be known at that row: shift what is known ahead.
    scaling : {"auto", "adaptive", "window", "standard", "channel", "none"}
        ``"channel"`` brings each channel to [0, 1] by its range in the training windows, ``"standard"`` to mean 0 and deviation
        1 there. ``"adaptive"`` also shows the network each channel relative to its running level, the mean of the last
        `window` rows, and forecasts are relative to that; with ``"window"`` it sees nothing but that, so that forecasts move
        along with the series. ``"none"`` leaves the data as it is. ``"auto"`` is ``"adaptive"`` with a direct readout, and
        ``"channel"``, as in the paper, otherwise.
    clip : bool
        Whether input beyond a channel's training range is brought back to it before it enters the network (forecasts are
        not limited). Without, a channel that leaves its range drives every neuron that listens to it out of its own.
    floor : bool
        Whether forecasts stay above a channel's least value in the training windows where that is reached again and again,
        as zero is by power, counts and rain.
    train : {"sample", "gradient", "sample+gradient"}
        How parameters are found: sampled, without gradients; trained by surrogate gradients from scratch; or sampled and
        then trained. A direct output is solved for once more after the latter, and the sampled network is kept where
        training brought nothing on the validation part.
    gradient : dict, optional
        Options of `sswim.finetune` for the latter two, such as ``{"epochs": 20, "time_limit": "5min"}``.
    tune : str or float, optional
        Time, such as ``"30s"``, to try other options in before the fit, on a part of the series; see `sswim.tuning`. What was
        chosen is in `tuned_`.
    missing : {"error", "interpolate"}
        What to do about NaN: refuse, or fill linearly in time.
    dtype : {"float32", "float64"}
    device : str
        Where to compute, such as ``"cpu"`` or ``"cuda"``.
    memory : str or int
        Memory budget for batches, such as ``"1GB"``.
    random_state : int or numpy generator, optional
        Same seed, same model.
    verbose : int
        1 shows progress bars on a terminal, 0 nothing.

    Attributes
    ----------
    network_ : SpikingNetwork
    report_ : SamplingReport
        What every step chose, with times and memory.
    low_, high_ : array of shape (channels,)
        Each channel's range in the training windows.
    offset_, span_ : array of shape (channels,)
        What is subtracted from each channel, and what it is divided by then.
    floor_ : array of shape (columns,)
        Below which no forecast goes.
    n_features_in_ : int
        Number of columns.
    columns_ : list or None
        Names of the columns, if a DataFrame was given.
    training_ : TrainingReport
        What gradient training did, if there was any; `training_.history` is a DataFrame.
    tuned_ : dict
        All options that tuning may change, as they are used; empty without `tune`.

    Examples
    --------
    >>> from sswim.datasets import load_wind_farm
    >>> wind = load_wind_farm().iloc[:2000]
    >>> model = Forecaster(window=24, horizon=6, hidden=(100,), random_state=0).fit(wind)
    >>> model.predict(wind).shape
    (6, 8)
    """

    def __init__(
        self,
        window: int = 168,
        horizon: int = 24,
        *,
        hidden: Sequence[int] = (100,),
        kernel: str | Kernel = "morlet",
        deeper_kernel: str | Kernel = "hat",
        output_kernel: str | Kernel = "hat",
        channels: str = "shared",
        readout: str = "direct",
        skip: bool = True,
        corrections: int = 60,
        common: int = 100,
        traces: Sequence[float] | None = None,
        temporal: Any = "auto",
        input_metric: Any = "entropy",
        deeper_metric: Any = "entropy",
        output_metric: Any = "entropy",
        pairs: Any = "gradient",
        weights: Any = "dot",
        normalizer: Any = "auto",
        delays: Any = "correlation",
        supports: Any = "search",
        regularization: Any = "search",
        assembly: Any = "auto",
        blocks: int = 1,
        initial_batch: int = 1000,
        validation: float = 0.2,
        stride: int = 1,
        covariates: Sequence[Any] = (),
        scaling: str = "auto",
        clip: bool = True,
        floor: bool = True,
        train: str = "sample",
        gradient: dict[str, Any] | None = None,
        tune: str | float | None = None,
        missing: str = "error",
        dtype: str = "float32",
        device: str = "cpu",
        memory: str | int = "1GB",
        random_state: Any = None,
        verbose: int = 1,
    ) -> None:
        self.window = window
        self.horizon = horizon
        self.hidden = hidden
        self.kernel = kernel
        self.deeper_kernel = deeper_kernel
        self.output_kernel = output_kernel
        self.channels = channels
        self.readout = readout
        self.skip = skip
        self.corrections = corrections
        self.common = common
        self.traces = traces
        self.temporal = temporal
        self.input_metric = input_metric
        self.deeper_metric = deeper_metric
        self.output_metric = output_metric
        self.pairs = pairs
        self.weights = weights
        self.normalizer = normalizer
        self.delays = delays
        self.supports = supports
        self.regularization = regularization
        self.assembly = assembly
        self.blocks = blocks
        self.initial_batch = initial_batch
        self.validation = validation
        self.stride = stride
        self.covariates = covariates
        self.scaling = scaling
        self.clip = clip
        self.floor = floor
        self.train = train
        self.gradient = gradient
        self.tune = tune
        self.missing = missing
        self.dtype = dtype
        self.device = device
        self.memory = memory
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, window: int = 168, horizon: int = 24, *, hidden: Sequence[int] = (750,), **options: Any) -> Self:
        """Return a forecaster as in the paper: all channels enter every neuron, and an output's voltage draws the horizon.

        `options` are those of the class.
        """
        return cls(window, horizon, **{"hidden": hidden, **PAPER, **options})

    def fit(self, X: Any, y: Any = None, *, breaks: Any = None) -> Self:
        """Fit the network to one or several series.

        Parameters
        ----------
        X : DataFrame, array of shape (rows, channels), or a list of these
            One row per time step. No window crosses from one series of a list to the next, nor a gap in a time index.
        y : ignored
            The targets are the rows that follow each window.
        breaks : int or sequence of int, optional
            Rows at which a new stretch begins, or every how many rows one does: windows do not cross these either.
        """
        with self._fitting():
            check_options(self)
            self._fit(as_series(X, breaks=breaks, missing=self.missing))
        return self

    def _fit(self, series: Series) -> None:
        self.n_features_in_ = series.channels
        self.columns_ = series.columns
        covariates = find_columns(self.covariates, self.columns_, self.n_features_in_)
        self.tuned_ = {} if self.tune is None else self._tune(series, covariates)
        rows = [torch.from_numpy(segment) for segment in series.segments]
        windows = Windows(rows, self.window, self.horizon, self.stride)
        if len(windows) < 3:
            total = sum(map(len, rows))
            parts = f" in {len(rows)} stretches, parted by gaps in the time index or breaks" if len(rows) > 1 else ""
            raise ValueError(
                f"series: too short. A window and its horizon take {self.window} + {self.horizon} rows, and at least 3 "
                f"windows are needed, but only {len(windows)} fit into {total} rows{parts} (n_samples = {total}). Use a "
                "shorter window, horizon or stride, or more data."
            )
        kept = len(windows) - max(1, int(len(windows) * self.validation))
        seen = windows.rows[windows.covered(kept)]
        self.low_, self.high_ = seen.amin(dim=0).numpy(), seen.amax(dim=0).numpy()
        flat = np.flatnonzero(self.low_ == self.high_)
        if len(flat):
            names = [series.columns[i] if series.columns is not None else int(i) for i in flat]
            shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
            warnings.warn(
                f"series: {len(flat)} of {series.channels} channels are constant in the training windows ({shown}): "
                "nothing can be learnt about how they move.",
                stacklevel=3,
            )
        self.offset_, self.span_ = scales(self._scaling, seen, self.low_, self.high_)
        self.floor_ = find_floors(seen) if self.floor else np.full(series.channels, -np.inf)
        if series.columns is not None and all(isinstance(c, str) for c in series.columns):
            self.feature_names_in_ = np.asarray(series.columns, dtype=object)
        self.network_ = build_network(self)
        self.report_: SamplingReport = self._engine.fit(self, rows, kept)

    def _tune(self, series: Series, covariates: list[int]) -> dict[str, Any]:
        if self.readout != "direct" or self.channels != "shared":
            raise ValueError("tune chooses among options of channels='shared' and readout='direct': leave these as they are.")
        with Tracker(self.verbose) as tracker, tracker.step("tuning"):
            return tune(self, series.segments, covariates)

    def _option(self, name: str) -> Any:
        """Return an option as it was chosen, or else given."""
        return self.tuned_.get(name, getattr(self, name))

    @property
    def _engine(self) -> Any:
        """The module that fits and forecasts with this readout."""
        return ENGINES[self.readout]

    def predict(self, X: Any) -> Any:
        """Forecast the `horizon` rows that follow the end of `X`, in the data's own units.

        Parameters
        ----------
        X : DataFrame, array of shape (rows, channels), or a list of these
            Of each series the last `window` rows are used; with a direct readout twice as many rows before them too, if
            there, for a network that runs along a series has a past.

        Returns
        -------
        DataFrame or array of shape (horizon, channels); a list or a 3-d array of them if several series were given
            A DataFrame's index is continued.
        """
        check_is_fitted(self)
        several = not isinstance(X, (pd.DataFrame, pd.Series)) and (
            np.ndim(X) == 3 if not isinstance(X, (list, tuple)) else any(np.ndim(part) == 2 for part in X)
        )
        parts = list(X) if several else [X]
        stacked = several and not isinstance(X, (list, tuple))
        forecasts = []
        for part in parts:
            series = self._series(part)
            last, index = series.segments[-1], series.indexes[-1]
            if len(last) < self.window:
                raise ValueError(
                    f"series: a forecast needs the last {self.window} rows (window) without a gap, got {len(last)}."
                )
            forecasts.append((last, index, series))
        values = self._engine.forecast(self, [torch.from_numpy(last) for last, _, _ in forecasts])
        results: list[Any] = [
            pd.DataFrame(value, index=continue_index(index, self.horizon), columns=self._columns_of(series))
            if series.labelled
            else value
            for value, (_, index, series) in zip(values, forecasts, strict=True)
        ]
        return values if stacked else results if several else results[0]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Any, Any]:
        """Return lower and upper bounds that the rows after `X` lie between in a part `coverage` of all cases.

        Split conformal: the bounds stand as far from the forecast as errors on the validation part did, separately for each
        step ahead and channel. For a direct readout.
        """
        check_is_fitted(self, "error_quantiles_", msg="predict_interval needs a Forecaster fitted with readout='direct'.")
        forecast, half = self.predict(X), direct_forecasts.half_width(self, coverage)
        floor = self.floor_[self._encoder.channels]

        def bounds(f: Any) -> tuple[Any, Any]:
            low = f - half
            return low.clip(lower=floor, axis=1) if isinstance(f, pd.DataFrame) else np.maximum(low, floor), f + half

        if isinstance(forecast, list):
            return tuple(map(list, zip(*map(bounds, forecast), strict=True)))  # type: ignore[return-value]
        return bounds(forecast)

    def stream(self) -> direct_forecasts.ForecastStream:
        """Return a stream that takes one new row at a time and forecasts the next `horizon` rows, for a direct readout."""
        check_is_fitted(self)
        if self.readout != "direct":
            raise ValueError("stream needs readout='direct': the paper's readout starts anew for every window.")
        return direct_forecasts.ForecastStream(self)

    def predict_windows(self, X: Any, *, breaks: Any = None) -> np.ndarray:
        """Forecast from every window of `X` whose horizon lies in it too, for back-testing.

        Returns
        -------
        array of shape (windows, horizon, channels), in the data's own units
        """
        check_is_fitted(self)
        return np.concatenate([forecast for _, forecast in self._backtest(X, breaks)])

    def evaluate(self, X: Any, *, breaks: Any = None) -> Evaluation:
        """Return the errors of the forecasts from every window of `X`: overall, per step ahead, and per channel.

        With a direct readout also how many values lie within the 90 % intervals.
        """
        check_is_fitted(self)
        channels = self._encoder.channels
        width = (self.high_ - self.low_)[channels]
        usual = np.median(width[width > 0]) if (width > 0).any() else 1.0
        half = direct_forecasts.half_width(self, 0.9) if hasattr(self, "error_quantiles_") else None
        errors = ForecastErrors(np.where(width > 0, width, usual), half)
        for truth, forecast in self._backtest(X, breaks):
            errors.update(truth, forecast)
        return errors.result(None if self.columns_ is None else [self.columns_[c] for c in channels])

    def _columns_of(self, series: Series) -> list[Any] | None:
        """Names of the columns of `series` that are forecast."""
        return None if series.columns is None else [series.columns[c] for c in self._encoder.channels]

    def score(self, X: Any, y: Any = None) -> float:
        """Return 1 - RSE^2 over every window of `X`: 1 is perfect, 0 is as good as knowing the mean."""
        return 1 - self.evaluate(X).rse ** 2

    def summary(self) -> Summary:
        """Return what was fitted and how: print it for a table, or take `to_dict()` of it."""
        check_is_fitted(self)
        return summarize(self.network_, self.report_, title=f"Forecaster, {self.window} -> {self.horizon} steps")

    @property
    def _encoder(self) -> Encoder:
        """What brings rows to the fitted network."""
        return Encoder(
            low=self.low_,
            high=self.high_,
            offset=self.offset_,
            span=self.span_,
            floor=self.floor_,
            covariates=find_columns(self.covariates, self.columns_, self.n_features_in_),
            scaling=self._scaling,
            shared=self.channels == "shared",
            window=self.window,
            clip=self.clip,
            dtype=DTYPES[self.dtype],
        )

    @property
    def _scaling(self) -> str:
        scaling = getattr(self, "tuned_", {}).get("scaling", self.scaling)
        if scaling != "auto":
            return str(scaling)
        return "adaptive" if self.readout == "direct" else "channel"

    def _series(self, X: Any, breaks: Any = None) -> Series:
        """Check a series against what was fitted."""
        series = as_series(X, breaks=breaks, missing=self.missing)
        series.check_channels(self.n_features_in_, self.columns_, type(self).__name__)
        return series

    def _backtest(self, X: Any, breaks: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield truth and forecast for every window of a series, batch by batch."""
        series = self._series(X, breaks)
        rows = [torch.from_numpy(segment) for segment in series.segments]
        if max(map(len, rows)) < self.window + self.horizon:
            raise ValueError(
                f"series: too short to test on. A window and its horizon take {self.window} + {self.horizon} rows "
                f"without a gap, the longest stretch has {max(map(len, rows))}."
            )
        yield from self._engine.backtest(self, rows)
