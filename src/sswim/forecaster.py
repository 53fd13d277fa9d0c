"""Forecasting in the manner of scikit-learn, by a spiking network that is sampled, not trained by gradients."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sswim.data.calendar import Calendar
from sswim.data.encoder import SeriesEncoder
from sswim.data.future import Future
from sswim.data.past import SeriesPast, cut_windows
from sswim.data.scaling import SCALINGS, Scaling
from sswim.data.series import Breaks, Series, SeriesLike, as_series, find_columns, is_several, with_gaps
from sswim.data.starts import Starts
from sswim.data.windows import Split, kept_for_training
from sswim.forecasts import ForecastModel, Forecasts
from sswim.gradient.training import TRAININGS, Gradient, improve, start_from_scratch
from sswim.inspection import InspectableForecaster
from sswim.network.network import KernelName, SpikingNetwork, resolve_kernels
from sswim.options import Mistakes, Run, Seed, check_choice, check_estimator, check_integer, check_widths, resolve_kind
from sswim.paper import Switches, paper_training
from sswim.profiles import Neurons, Profile, neurons_of
from sswim.readout.base import ForecastReadoutOptions, Shape
from sswim.readout.direct import Direct
from sswim.readout.fading import Traces
from sswim.readout.trajectory import Trajectory
from sswim.report import Facts
from sswim.sampling import STEPS, ResolvedSteps, Steps, sample_network
from sswim.streams import ForecastStream
from sswim.updating import UpdatableForecaster

__all__ = ["Forecaster"]

READOUTS: dict[str, ForecastReadoutOptions] = {"direct": Direct(), "traces": Traces(), "trajectory": Trajectory()}


@dataclass(frozen=True)
class _Options:
    """A forecaster's options as objects."""

    readout: ForecastReadoutOptions
    steps: ResolvedSteps
    scaling: Scaling
    training: Gradient | None
    neurons: Neurons


class Forecaster(UpdatableForecaster, InspectableForecaster):
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
        callable. One alone is for the first layer, and further layers have ``"hat"``. Default: ``"morlet"``, or the neurons of
        a `profile`.
    readout : {"direct", "traces", "trajectory"}, Direct, Traces or Trajectory
        ``"direct"``: each step ahead has weights of its own, which read the spikes of the whole window. ``"traces"``: the same
        of fading traces alone. ``"trajectory"``: the voltage of an output neuron draws the horizon, as in the paper.
    steps : str or Steps
        The steps that sample the hidden layers: ``"forecast"``, ``"paper"``, or a `Steps` object.
    channels : {"shared", "joint"}
        Whether the same small network looks at every channel, or all channels enter one network, as in the paper.
    covariates : sequence
        Columns, by name or number, that are seen but not forecast, such as a measured temperature.
    known : sequence
        Covariates that are known ahead, such as the hour of the day or a weather forecast. They need not be listed in
        `covariates` too. `predict` then needs `future`. For a direct readout without training by gradients.
    scaling : str or Scaling
        How channels are scaled: ``"adaptive"``, ``"window"``, ``"standard"``, ``"channel"``, ``"none"``, or a `Scaling` object.
    validation : float
        Part of the windows, the last ones, that a trajectory readout chooses its regularisation on, and intervals come from.
    training : {None, "sample+gradient", "gradient"}, Gradient or FromScratch
        Whether surrogate gradients train the sampled network further, or one of random parameters. Default: neither.
    profile : {None, "nir", "xylo", "speck", "loihi"} or Profile
        Limits of a chip, which the network keeps: leaky integrate-and-fire neurons, weights of few bits, sizes. Then the
        readout ``"direct"`` reads traces alone, and some hundreds of `hidden` neurons are needed.
    missing : {"error", "interpolate"}
        ``"error"`` refuses NaN, ``"interpolate"`` fills it linearly in time.
    dtype : {"float32", "float64"}
    device : str
        Where to compute, such as ``"cpu"`` or ``"cuda"``.
    memory : str or int
        Memory budget, such as ``"2GB"``. It decides how much is computed at once, and not what comes out. The sums of a fit
        are kept for updates (`partial_fit`, `merge`) if they take at most half of it.
    executor : int, str, distributed.Client or Executor, optional
        Who computes the sums over all windows: a number of processes, the Dask cluster at an address such as
        ``"tcp://host:8786"``, or an object from `sswim.scale`. Default: threads of this process. The result is the same.
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
    model_type = ForecastModel
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
        kernel: KernelName | Sequence[KernelName] = "auto",
        readout: str | ForecastReadoutOptions = "direct",
        steps: str | Steps = "forecast",
        channels: str = "shared",
        covariates: Sequence[Hashable] = (),
        known: Sequence[Hashable] = (),
        scaling: str | Scaling = "adaptive",
        validation: float = 0.2,
        training: str | Gradient | None = None,
        profile: str | Profile | None = None,
        missing: str = "error",
        dtype: str = "float32",
        device: str = "cpu",
        memory: str | int = "2GB",
        executor: object = None,
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
        self.known = known
        self.scaling = scaling
        self.validation = validation
        self.training = training
        self.profile = profile
        self.missing = missing
        self.dtype = dtype
        self.device = device
        self.memory = memory
        self.executor = executor
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, window: int = 168, horizon: int = 24, *, hidden: Sequence[int] = (750,), **options: Any) -> Self:
        """Return the paper's forecaster, to the letter. `options` are those of the class, and switches to ours.

        The switches: ``assembly="fast"``, ``bias="free"``, ``grid="extended"`` and ``clip=True``, see `sswim.paper.Switches`.
        """
        switches = Switches(**{name: options.pop(name) for name in Switches().get_params() if name in options})
        paper = {
            "channels": "joint",
            "kernel": "morlet",
            "readout": switches.trajectory,
            "steps": "paper",
            "scaling": switches.scaling,
        }
        made = {**paper, **options, "training": paper_training(options.get("training"))}
        return cls(window, horizon, hidden=hidden, **made)

    def fit(self, X: SeriesLike, y: object = None, *, breaks: Breaks = None, checkpoint: str | Path | None = None) -> Self:
        """Fit the network to one or several series.

        Parameters
        ----------
        X : DataFrame, array of shape (rows, channels), or a list of these
            One row per time step. No window crosses from one series of a list to the next, nor a gap in a time index. A series
            need not fit into memory: see `sswim.data.open_rows`.
        y : ignored
            The targets are the rows that follow each window.
        breaks : int or sequence of int, optional
            Rows at which a new segment begins, or the length of all segments in rows. No window crosses into the next segment.
        checkpoint : path, optional
            Folder that partial sums are written to. A fit that was stopped goes on from them, if `random_state` is a number.
        """
        options, adder = self._resolved(), self._adder(checkpoint)
        series = as_series(X, breaks=breaks, missing=self.missing)
        stride = options.readout.stride
        starts = Starts([len(segment) for segment in series.segments], self.window + self.horizon, stride)
        series.check_length(self.window, self.horizon, len(starts))
        series.warn_of_gaps(self.window, self.horizon)
        kept = kept_for_training(len(starts), self.validation)
        known, others = (find_columns(getattr(self, a), series.columns, series.channels, a) for a in ("known", "covariates"))
        if known and (not isinstance(options.readout, Direct) or self.training is not None):
            raise ValueError("known needs readout='direct' and training=None: nothing else sees rows ahead.")
        encoder = SeriesEncoder.fit(
            series.rows(starts.covered(len(starts))),
            sum(last - first for _, first, last in starts.covered(kept)),
            options.scaling,
            covariates=find_columns(sorted({*known, *others}), None, series.channels),
            known=known,
            shared=self.channels == "shared",
            window=self.window,
            precise=self.dtype == "float64",
            calendar=self._calendar(series, options),
            add=self._adder(),
        )
        encoder.warn_of_constants(series.columns)
        with Run(self.memory, self.random_state, self.verbose, keep_sums=True, adder=adder) as run:
            network = self._network(encoder, options, run)
            past = SeriesPast.nothing(series.channels, len(starts), kept, stride)
            samples, past = cut_windows(encoder, series, past, self.window, self.horizon, run.budget)
            split = Split.at(samples, kept * samples.batch)
            if options.training is None or not options.training.from_scratch:
                report = sample_network(network, split, options.steps, options.readout, run)
            else:
                report = start_from_scratch(network, split, options.training, run)
            if options.training is not None:
                report = improve(network, split, options.readout, options.training, report, run)
        self.model_ = ForecastModel(encoder, network, report, series.names, self.missing, run.budget, past, series.pace())
        return self

    def _resolved(self) -> _Options:
        """Check every option, and return them as objects; all mistakes are reported at once."""
        mistakes = Mistakes()
        check = mistakes.check
        check(check_integer, "window", self.window, 1)
        check(check_integer, "horizon", self.horizon, 1)
        check(check_choice, "channels", self.channels, ("shared", "joint"))
        check(check_choice, "missing", self.missing, ("error", "interpolate"))
        check(check_widths, "hidden", self.hidden)
        check_estimator(
            mistakes,
            validation=self.validation,
            dtype=self.dtype,
            device=self.device,
            memory=self.memory,
            random_state=self.random_state,
        )
        neurons = neurons_of(self.profile, self.kernel, "morlet", self.training, mistakes)
        with mistakes.collect():
            resolve_kernels("kernel", neurons.kernel, len(self.hidden) if isinstance(self.hidden, Sequence) else 1)
        steps = check(resolve_kind, "steps", self.steps, STEPS, Steps)
        readout = check(resolve_kind, "readout", self.readout, READOUTS, Direct, Traces, Trajectory)
        options = _Options(
            check(neurons.readout, readout, isinstance(self.readout, str)),
            neurons.steps(steps).resolved(mistakes) if isinstance(steps, Steps) else steps,
            check(resolve_kind, "scaling", self.scaling, SCALINGS, Scaling),
            None if self.training is None else check(resolve_kind, "training", self.training, TRAININGS, Gradient),
            neurons,
        )
        mistakes.report()
        return options

    def _calendar(self, series: Series, options: _Options) -> Calendar | None:
        """Return what forecasts may know of the time of day, week and year."""
        if not isinstance(options.readout, Direct) or not options.readout.calendar or options.training is not None:
            return None
        times = series.times()
        if times is None:
            return None
        groups, each = (series.channels, 1) if self.channels == "shared" else (1, series.channels)
        found = Calendar.of(times, [len(segment) for segment in series.segments])
        room = found is not None and options.readout.has_room(found.features, groups, self.horizon * each)
        return found if room else None

    def _network(self, encoder: SeriesEncoder, options: _Options, run: Run) -> SpikingNetwork:
        """Return a network of the right shape, its parameters still to be set."""
        shared, channels = self.channels == "shared", len(encoder.moving)
        scratch = options.training is not None and options.training.from_scratch
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        clock = 0 if encoder.calendar is None else encoder.calendar.features
        outputs, sharing = (1, 0 if scratch else channels) if shared else (channels, 0)
        sizes = encoder.inputs, outputs, self.window, self.horizon, self.hidden, sharing, run.budget, dtype
        shape = Shape(*sizes, len(encoder.covariates), len(encoder.known), clock, encoder.scaling.kind)
        network = SpikingNetwork(
            encoder.inputs,
            outputs,
            window=self.window,
            horizon=self.horizon,
            hidden=self.hidden,
            kernel=options.neurons.kernel,
            refractory=options.neurons.refractory,
            readout=options.readout.build(shape),
            dtype=dtype,
        )
        return options.neurons.check(network).to(self.device)

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

    def predict(self, X: SeriesLike, future: Future = None) -> Forecasts:
        """Forecast the `horizon` rows that follow the end of `X`, in the data's own units.

        Parameters
        ----------
        X : DataFrame, array of shape (rows, channels), or a list of these
            The last `window` rows of each series are used, and no others.
        future : DataFrame, array of shape (horizon, known), or a list of these, optional
            The covariates `known` at the rows that follow `X`, if the model has any. Other columns are not used.

        Returns
        -------
        DataFrame or array of shape (horizon, channels); a list or a 3-d array of them if several series were given
            A DataFrame's index is continued.
        """
        check_is_fitted(self)
        return self.model_.predict(X, future)[0]

    def predict_interval(self, X: SeriesLike, coverage: float = 0.9, future: Future = None) -> tuple[Forecasts, Forecasts]:
        """Return lower and upper bounds that contain a fraction `coverage` of the rows that follow `X`.

        Split conformal: the bounds stand as far from the forecast as errors on the validation part did, separately for each
        step ahead and channel. For a direct readout. `future` is that of `predict`.
        """
        check_is_fitted(self)
        self.model_.half_width(coverage)  # a wrong coverage is told before the work
        forecast, rows = self.model_.predict(X, future, timed=True)
        return self.model_.bounds(forecast, coverage, rows)

    def stream(self, X: SeriesLike | None = None) -> ForecastStream:
        """Return a stream that takes one new row at a time and forecasts the next `horizon` rows.

        Parameters
        ----------
        X : DataFrame or array of shape (rows, channels), optional
            Rows that came before, such as a stream's `past`. Default: none.
        """
        check_is_fitted(self)
        if X is None:
            return ForecastStream(self.model_)
        if is_several(X):
            raise ValueError("X: a stream continues one series, got several. Make a stream for each.")
        series = self.model_.series(X)
        return ForecastStream(self.model_, with_gaps(X)[-len(series.segments[-1]) :], series.indexes[-1])
