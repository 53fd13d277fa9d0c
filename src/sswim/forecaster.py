"""Forecasting in the manner of scikit-learn, by a spiking network that is sampled, not trained by gradients."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from sswim.data.encoder import SCALINGS, Scaling, SeriesEncoder, find_columns, find_resting
from sswim.data.series import Breaks, Series, SeriesLike, as_series, continue_index, is_several
from sswim.data.windows import SeriesWindows, Split, Windows, kept_for_training
from sswim.estimator import Estimator
from sswim.evaluate.metrics import Evaluation, ForecastErrors
from sswim.forecasts import Costs, ForecastModel, ForecastStream
from sswim.gradient.training import TRAININGS, Gradient, improve, start_from_scratch
from sswim.network.network import KernelName, SpikingNetwork, resolve_kernels
from sswim.options import Mistakes, Run, Seed, check_choice, check_estimator, check_integer, resolve_kind
from sswim.paper import Switches, paper_training
from sswim.readout.base import ForecastReadoutOptions, Shape
from sswim.readout.direct import Direct
from sswim.readout.lags import LagReadout
from sswim.readout.trajectory import Trajectory
from sswim.report import Facts, Summary, summarize
from sswim.sampling import STEPS, ResolvedSteps, Steps, sample_network

__all__ = ["Forecaster"]

READOUTS: dict[str, ForecastReadoutOptions] = {"direct": Direct(), "trajectory": Trajectory()}
Forecasts = Any  # a DataFrame, an array, or a list of either, as the series are


@dataclass(frozen=True)
class _Options:
    """A forecaster's options as objects."""

    readout: ForecastReadoutOptions
    steps: ResolvedSteps
    scaling: Scaling
    training: Gradient | None


class Forecaster(Estimator[ForecastModel]):
    """Forecast a multivariate series with a spiking network, without gradients.

    A population of neurons carries every channel of a window, and some sampled neurons look at it. Each step ahead has weights
    of its own, which read their spikes. A forecast depends on the last `window` rows only. `Forecaster.paper` is the paper's
    model.

    Parameters
    ----------
    window, horizon : int
        Rows the model looks at, and rows it forecasts.
    hidden : sequence of int
        Number of sampled neurons in each hidden layer. The populations come on top, see `Direct`.
    kernel : str, callable, or sequence of these
        Kernels of the hidden layers: ``"hat"``, ``"morlet"``, ``"morlet-wide"``, ``"exponential"``, ``"alpha"``, or any
        callable. One alone is for the first layer, and further layers have ``"hat"``.
    readout : {"direct", "trajectory"}, Direct or Trajectory
        ``"direct"``: each step ahead has weights of its own, which read the spikes of the whole window. ``"trajectory"``: the
        voltage of an output neuron draws the horizon, as in the paper.
    steps : str or Steps
        The steps that sample the hidden layers: ``"forecast"``, ``"paper"``, or a `Steps` object.
    channels : {"shared", "joint"}
        Whether the same small network looks at every channel, or all channels enter one network, as in the paper.
    covariates : sequence
        Columns, by name or number, that are seen but not forecast, such as the hour of the day or the weather. A row's values
        must be known at that row: shift columns that are known ahead.
    scaling : str or Scaling
        How channels are scaled: ``"adaptive"``, ``"window"``, ``"standard"``, ``"channel"``, ``"none"``, or a `Scaling` object.
    validation : float
        Part of the windows, the last ones, that a trajectory readout chooses its regularisation on, and intervals come from.
    training : {None, "sample+gradient", "gradient"}, Gradient or FromScratch
        Whether surrogate gradients train the sampled network further, or one of random parameters. Default: neither.
    missing : {"error", "interpolate"}
        ``"error"`` refuses NaN, ``"interpolate"`` fills it linearly in time.
    dtype : {"float32", "float64"}
    device : str
        Where to compute, such as ``"cpu"`` or ``"cuda"``.
    memory : str or int
        Memory budget, such as ``"2GB"``. It decides how much is computed at once, and not what comes out.
    random_state : int or numpy generator, optional
        Same seed, same model.
    verbose : int
        1 shows progress bars on a terminal, 0 nothing.

    Attributes
    ----------
    model_ : ForecastModel
        Everything that a prediction, a stream or a file needs.
    network_ : SpikingNetwork
    report_ : SamplingReport
        What every step chose, with times and memory.
    training_ : TrainingReport or None
        What gradient training did; `training_.history` is a DataFrame.

    Examples
    --------
    >>> from sswim.datasets import load_wind_farm
    >>> wind = load_wind_farm().iloc[:2000]
    >>> model = Forecaster(window=24, horizon=6, hidden=(100,), random_state=0).fit(wind)
    >>> model.predict(wind).shape
    (6, 8)
    """

    model_: ForecastModel
    named_options: ClassVar[dict[str, Facts]] = {
        "readout": READOUTS,
        "steps": STEPS,
        "scaling": SCALINGS,
        "training": TRAININGS,
    }

    def __init__(
        self,
        window: int = 168,
        horizon: int = 24,
        *,
        hidden: Sequence[int] = (20,),
        kernel: KernelName | Sequence[KernelName] = "morlet",
        readout: str | ForecastReadoutOptions = "direct",
        steps: str | Steps = "forecast",
        channels: str = "shared",
        covariates: Sequence[Hashable] = (),
        scaling: str | Scaling = "adaptive",
        validation: float = 0.2,
        training: str | Gradient | None = None,
        missing: str = "error",
        dtype: str = "float32",
        device: str = "cpu",
        memory: str | int = "2GB",
        random_state: Seed = None,
        verbose: int = 1,
    ) -> None:
        self.window = window
        self.horizon = horizon
        self.hidden = hidden
        self.kernel = kernel
        self.readout = readout
        self.steps = steps
        self.channels = channels
        self.covariates = covariates
        self.scaling = scaling
        self.validation = validation
        self.training = training
        self.missing = missing
        self.dtype = dtype
        self.device = device
        self.memory = memory
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, window: int = 168, horizon: int = 24, *, hidden: Sequence[int] = (750,), **options: Any) -> Self:
        """Return the paper's forecaster, to the letter. `options` are those of the class, and switches to ours.

        The switches: ``assembly="fast"``, ``bias="free"``, ``grid="extended"`` and ``clip=True``, see `sswim.paper.Switches`.
        """
        switches = Switches(**{name: options.pop(name) for name in Switches().get_params() if name in options})
        paper = {"channels": "joint", "readout": switches.trajectory, "steps": "paper", "scaling": switches.scaling}
        made = {**paper, **options, "training": paper_training(options.get("training"))}
        return cls(window, horizon, hidden=hidden, **made)

    def fit(self, X: SeriesLike, y: object = None, *, breaks: Breaks = None) -> Self:
        """Fit the network to one or several series.

        Parameters
        ----------
        X : DataFrame, array of shape (rows, channels), or a list of these
            One row per time step. No window crosses from one series of a list to the next, nor a gap in a time index.
        y : ignored
            The targets are the rows that follow each window.
        breaks : int or sequence of int, optional
            Rows at which a new stretch begins, or its length in rows: windows do not cross from one stretch into the next.
        """
        options = self._resolved()
        series = as_series(X, breaks=breaks, missing=self.missing)
        rows, stride = [torch.from_numpy(segment) for segment in series.segments], options.readout.stride
        windows = Windows(rows, self.window, self.horizon, stride)
        series.check_length(self.window, self.horizon, len(windows))
        series.warn_of_gaps(self.window, self.horizon)
        kept = kept_for_training(len(windows), self.validation)
        covariates = find_columns(self.covariates, series.columns, series.channels)
        encoder = SeriesEncoder.fit(
            windows.rows[windows.covered(kept)],
            options.scaling,
            covariates=covariates,
            resting=find_resting(windows.rows[windows.covered(len(windows))], covariates),
            shared=self.channels == "shared",
            window=self.window,
            precise=self.dtype == "float64",
        )
        encoder.warn_of_constants(series.columns)
        with Run(self.memory, self.random_state, self.verbose) as run:
            network = self._network(encoder, options, run)
            segments = [encoder(encoder.without_outliers(r)) for r in rows]
            samples = SeriesWindows(encoder, segments, self.window, self.horizon, stride)
            split = Split.at(samples, kept * samples.batch)
            if options.training is None or not options.training.from_scratch:
                report = sample_network(network, split, options.steps, options.readout, run)
            else:
                report = start_from_scratch(network, split, options.training, run)
            if options.training is not None:
                report = improve(network, split, options.readout, options.training, report, run)
        self.model_ = ForecastModel(encoder, network, report, series.names, self.missing, run.budget)
        return self

    def _resolved(self) -> _Options:
        """Check every option, and return them as objects; all mistakes are reported at once."""
        mistakes = Mistakes()
        check = mistakes.check
        check(check_integer, "window", self.window, 1)
        check(check_integer, "horizon", self.horizon, 1)
        check(check_choice, "channels", self.channels, ("shared", "joint"))
        check(check_choice, "missing", self.missing, ("error", "interpolate"))
        check_estimator(
            mistakes,
            hidden=self.hidden,
            validation=self.validation,
            dtype=self.dtype,
            device=self.device,
            memory=self.memory,
            random_state=self.random_state,
        )
        with mistakes.collect():
            resolve_kernels("kernel", self.kernel, len(self.hidden) if isinstance(self.hidden, Sequence) else 1)
        steps = check(resolve_kind, "steps", self.steps, STEPS, Steps)
        options = _Options(
            check(resolve_kind, "readout", self.readout, READOUTS, Direct, Trajectory),
            steps.resolved(mistakes) if isinstance(steps, Steps) else steps,
            check(resolve_kind, "scaling", self.scaling, SCALINGS, Scaling),
            None if self.training is None else check(resolve_kind, "training", self.training, TRAININGS, Gradient),
        )
        mistakes.report()
        return options

    def _network(self, encoder: SeriesEncoder, options: _Options, run: Run) -> SpikingNetwork:
        """Return a network of the right shape, its parameters still to be set."""
        shared, channels = self.channels == "shared", len(encoder.moving)
        scratch = options.training is not None and options.training.from_scratch
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        outputs, sharing = (1, 0 if scratch else channels) if shared else (channels, 0)
        shape = Shape(
            encoder.inputs,
            outputs,
            self.window,
            self.horizon,
            self.hidden,
            sharing,
            run.budget,
            dtype,
            covariates=len(encoder.covariates),
            scaling=encoder.scaling.kind,
        )
        network = SpikingNetwork(
            encoder.inputs,
            outputs,
            window=self.window,
            horizon=self.horizon,
            hidden=self.hidden,
            kernel=self.kernel,
            readout=options.readout.build(shape),
            dtype=dtype,
        )
        return network.to(self.device)

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return self._fitted("n_features_in_").encoder.columns

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the columns, if a DataFrame with text as names was given."""
        columns = self._fitted("feature_names_in_").columns
        if columns is None or not all(isinstance(c, str) for c in columns):
            raise AttributeError("feature_names_in_: the series had no names of columns.")
        return np.asarray(columns, dtype=object)

    def predict(self, X: SeriesLike) -> Forecasts:
        """Forecast the `horizon` rows that follow the end of `X`, in the data's own units.

        Parameters
        ----------
        X : DataFrame, array of shape (rows, channels), or a list of these
            The last `window` rows of each series are used, and no others.

        Returns
        -------
        DataFrame or array of shape (horizon, channels); a list or a 3-d array of them if several series were given
            A DataFrame's index is continued.
        """
        check_is_fitted(self)
        model, several = self.model_, is_several(X)
        parts = [self._series(part) for part in (list(X) if several else [X])]  # type: ignore[arg-type]
        for number, series in enumerate(parts):
            series.check_window(model.window, f"series[{number}]" if several else "series")
        values = model.forecast([torch.from_numpy(series.segments[-1]) for series in parts])
        results = [self._labelled(value, series) for value, series in zip(values, parts, strict=True)]
        return values if several and not isinstance(X, (list, tuple)) else results if several else results[0]

    def _labelled(self, value: np.ndarray, series: Series) -> pd.DataFrame | np.ndarray:
        """Return a forecast (horizon, channels) as the user gave the series."""
        if series.columns is None:
            return value
        names = [series.columns[c] for c in self.model_.encoder.channels]
        return pd.DataFrame(value, index=continue_index(series.indexes[-1], len(value)), columns=names)

    def predict_interval(self, X: SeriesLike, coverage: float = 0.9) -> tuple[Forecasts, Forecasts]:
        """Return lower and upper bounds that contain a fraction `coverage` of the rows that follow `X`.

        Split conformal: the bounds stand as far from the forecast as errors on the validation part did, separately for each
        step ahead and channel. For a direct readout.
        """
        check_is_fitted(self)
        half, encoder = self.model_.half_width(coverage), self.model_.encoder
        floor, forecast = encoder.floor[encoder.channels], self.predict(X)

        def low(f: Forecasts) -> Forecasts:
            return (f - half).clip(lower=floor, axis=1) if isinstance(f, pd.DataFrame) else np.maximum(f - half, floor)

        if isinstance(forecast, list):
            return [low(f) for f in forecast], [f + half for f in forecast]
        return low(forecast), forecast + half

    def stream(self) -> ForecastStream:
        """Return a stream that takes one new row at a time and forecasts the next `horizon` rows."""
        check_is_fitted(self)
        return self.model_.stream()

    def predict_windows(self, X: SeriesLike, *, breaks: Breaks = None) -> np.ndarray:
        """Forecast from every window of `X` whose horizon lies in it too, for back-testing.

        Returns
        -------
        array of shape (windows, horizon, channels), in the data's own units
        """
        check_is_fitted(self)
        return np.concatenate([forecast for _, forecast in self._backtest(X, breaks)])

    def evaluate(self, X: SeriesLike, *, breaks: Breaks = None) -> Evaluation:
        """Return the errors of the forecasts from every window of `X`: overall, per step ahead, and per channel.

        With a direct readout also the part of the values that lie within the 90 % intervals.
        """
        check_is_fitted(self)
        model, channels = self.model_, self.model_.encoder.channels
        width = (model.encoder.high - model.encoder.low)[channels]
        usual = np.median(width[width > 0]) if (width > 0).any() else 1.0
        errors = ForecastErrors(np.where(width > 0, width, usual), model.half_width(0.9) if model.has_intervals else None)
        for truth, forecast in self._backtest(X, breaks):
            errors.update(truth, forecast)
        return errors.result(None if model.columns is None else [model.columns[c] for c in channels])

    def costs(self, X: SeriesLike, *, breaks: Breaks = None) -> Costs:
        """Return the spikes and synaptic operations of a forecast, averaged over windows of `X`."""
        check_is_fitted(self)
        segments = [s for s in self._series(X, breaks).segments if len(s) >= self.model_.window]
        if not segments:
            raise ValueError(f"series: a forecast needs {self.model_.window} rows (window) without a gap.")
        return self.model_.costs([torch.from_numpy(segment) for segment in segments])

    def score(self, X: SeriesLike, y: object = None) -> float:
        """Return 1 - RSE^2 over every window of `X`: 1 is perfect, 0 is as good as knowing the mean.

        Where nothing moves, the score is 1 for forecasts without an error and 0 for others, as in scikit-learn.
        """
        found = self.evaluate(X)
        return float(found.rmse == 0) if np.isnan(found.rse) else 1 - found.rse**2

    def summary(self) -> Summary:
        """Return what was fitted and how: print it for a table, or take `to_dict()` of it."""
        check_is_fitted(self)
        model, readout, read = self.model_, self.model_.network.readout, None
        if isinstance(readout, LagReadout):
            read = readout.singles if readout.skip else readout.population.neurons
        title = f"Forecaster, {model.window} -> {model.horizon} steps"
        return summarize(model.network, model.report, title, population=read)

    def _series(self, X: SeriesLike, breaks: Breaks = None) -> Series:
        """Check a series against what was fitted."""
        model = self.model_
        series = as_series(X, breaks=breaks, missing=model.missing)
        series.check_channels(model.encoder.columns, model.columns, type(self).__name__)
        return series

    def _backtest(self, X: SeriesLike, breaks: Breaks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield truth and forecast for every window of a series, batch by batch."""
        series, window, horizon = self._series(X, breaks), self.model_.window, self.model_.horizon
        longest = max(map(len, series.segments))
        if longest < window + horizon:
            raise ValueError(
                f"series: too short to test on. A window and its horizon take {window} + {horizon} rows without a gap, the "
                f"longest stretch has {longest}."
            )
        yield from self.model_.backtest([torch.from_numpy(segment) for segment in series.segments])
