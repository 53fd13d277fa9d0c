"""Classification in the manner of scikit-learn, by a spiking network that is sampled, not trained by gradients."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor

from sswim import direct_classes, voltage_classes
from sswim._checks import check_fraction, check_integer, check_positive, parse_memory, resolve
from sswim._estimator import DTYPES, TRAININGS
from sswim._inputs import SampleEstimator
from sswim._random import Randomness
from sswim.events import dense
from sswim.hidden import batch_size
from sswim.initialization import initialize
from sswim.kernels import Kernel
from sswim.labelled import LabelledSamples, voltage_output
from sswim.likelihood import fit_temperature
from sswim.network import SpikingNetwork
from sswim.report import SamplingReport, Summary, summarize
from sswim.steps import WEIGHTS, ReceptiveFields, TemporalGrid
from sswim.training import SCRATCH, check_gradient, train_further, untrained_report
from sswim.windows import Subset, batches

__all__ = ["Classifier"]

READOUTS = ("direct", "voltage", "spikes")
LOSSES = ("log_loss", "squared_error")


class Classifier(ClassifierMixin, SampleEstimator):
    """Classify images, or signals and spikes in time, with a spiking network that is sampled.

    Parameters
    ----------
    hidden : sequence of int
        One width per hidden layer.
    encoder : str, Encoder or None
        How intensities become spikes: ``"image"`` (regular spikes on few steps), ``"rate"``, ``"poisson"`` (as in the paper),
        ``"latency"``, or an object from `sswim.encoders` with other settings; inputs may have any shape then. None for inputs
        (samples, steps, channels) that have a time of their own, `ExactEvents` for ragged samples of events (times, channels),
        which are taken at their exact times. ``"auto"`` is ``"image"`` for inputs of two dimensions, and else what they look
        like.
    fields : "auto", sequence of int or None
        Whether each neuron of the first layer sees a patch of the input only, see `sswim.steps.ReceptiveFields`: how channels
        are laid out, such as (28, 28) for flattened images. ``"auto"`` knows it of images (samples, rows, columns) that an
        encoder is named for, and of cameras' events.
    readout : {"direct", "voltage", "spikes"}
        ``"direct"`` reads how often each neuron of every layer fired. With the others the output layer's voltages follow the
        paper's surrogate of plus or minus ``1 + delta``, and the class is that of the largest integral, or of the most spikes.
    traces : sequence of float
        With a direct readout, time constants in steps of the traces that are read; infinity counts spikes.
    loss : {"log_loss", "squared_error"}
        With a direct readout, whether its weights make the training samples' classes likely, or are those of a regression. The
        former starts from the latter, and keeps the traces of all samples, or of as many as `memory` has room for.
    horizon, delta, delays, supports, assembly
        Of the output layer of the paper's two readouts: steps that its voltages are fitted on, the paper's Delta, and steps of
        `sswim.sample`.
    integrate : {"horizon", "all"}
        Whether these are integrated or counted over the steps that they were fitted on, or over all, as in the paper. What the
        output does before the horizon is left to chance.
    normalize : bool
        With ``readout="spikes"``, whether the output's voltages are scaled and shifted, and its spike costs set, such that the
        numbers of spikes tell the classes apart; the paper leaves them as they are.
    depth : str or step
        How deeper layers of a direct readout are sampled: ``"residual"``, by what the layers before leave unexplained, see
        `sswim.steps.ResidualDepth`, or ``"plain"`` as in the paper.
    kernel, deeper_kernel, temporal, input_metric, deeper_metric, pairs, weights, normalizer, regularization
        Steps of the algorithm, by name or as objects; see `sswim.sample`. ``temporal="auto"`` fits the number of steps.
    class_weight : dict, "balanced" or None
        How much samples of each class count in the output weights of a direct readout.
    train : {"sample", "gradient", "sample+gradient"}
        Whether parameters are sampled, trained by surrogate gradients from scratch, or both; the loss is the cross entropy.
    gradient : dict, optional
        Options of `sswim.finetune` for the latter two, such as ``{"epochs": 5}``.
    initial_batch : int
        Number of samples that the hidden layers are sampled from; deeper ones see more of them with ``depth="residual"``.
    validation : float
        Part of the samples that the regularisation is chosen on.
    dtype, device, memory, random_state, verbose
        As in `Forecaster`.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    network_ : SpikingNetwork
    report_ : SamplingReport
    range_ : tuple of float
        Least and largest intensity of the training samples, which are brought to 0 and 1.
    normalization_ : tuple of float
        With ``readout="spikes"`` and ``normalize``: what the output's voltages were multiplied by and shifted by, and the cost.
    temperature_ : float
        What decision values are divided by for probabilities, fitted on the validation part.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = Classifier(hidden=(200,), random_state=0, verbose=0).fit(X[:1200], y[:1200])
    >>> bool(model.score(X[1200:], y[1200:]) > 0.9)
    True
    """

    def __init__(
        self,
        hidden: Sequence[int] = (1000,),
        *,
        encoder: Any = "auto",
        fields: Any = "auto",
        readout: str = "direct",
        traces: Sequence[float] = (float("inf"),),
        loss: str = "log_loss",
        horizon: int = 15,
        delta: float = 1.0,
        delays: Any = "zero",
        supports: Any = "search",
        assembly: Any = "auto",
        integrate: str = "horizon",
        normalize: bool = True,
        depth: Any = "residual",
        kernel: str | Kernel = "hat",
        deeper_kernel: str | Kernel = "hat",
        temporal: Any = "auto",
        input_metric: Any = "l2",
        deeper_metric: Any = "l2",
        pairs: Any = "gradient",
        weights: Any = "dot",
        normalizer: Any = "diverse",
        regularization: Any = "search",
        class_weight: Any = None,
        train: str = "sample",
        gradient: dict[str, Any] | None = None,
        initial_batch: int = 900,
        validation: float = 1 / 6,
        dtype: str = "float32",
        device: str = "cpu",
        memory: str | int = "1GB",
        random_state: Any = None,
        verbose: int = 1,
    ) -> None:
        self.hidden = hidden
        self.encoder = encoder
        self.fields = fields
        self.readout = readout
        self.traces = traces
        self.loss = loss
        self.horizon = horizon
        self.delta = delta
        self.delays = delays
        self.supports = supports
        self.assembly = assembly
        self.integrate = integrate
        self.normalize = normalize
        self.depth = depth
        self.kernel = kernel
        self.deeper_kernel = deeper_kernel
        self.temporal = temporal
        self.input_metric = input_metric
        self.deeper_metric = deeper_metric
        self.pairs = pairs
        self.weights = weights
        self.normalizer = normalizer
        self.regularization = regularization
        self.class_weight = class_weight
        self.train = train
        self.gradient = gradient
        self.initial_batch = initial_batch
        self.validation = validation
        self.dtype = dtype
        self.device = device
        self.memory = memory
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, hidden: Sequence[int] = (1000,), *, readout: str = "voltage", **options: Any) -> Self:
        """Return a classifier as in the paper: Poisson spikes over 100 steps, and an output layer of surrogate voltages."""
        defaults = {
            "encoder": "poisson",
            "fields": None,
            "depth": "plain",
            "temporal": TemporalGrid(max_delay=30.0, min_support=3.0, max_support=25.0),
            "normalizer": "mean-std",
            "integrate": "all",
            "normalize": False,
        }
        return cls(hidden, readout=readout, **{**defaults, **options})

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the network to samples and their classes.

        Parameters
        ----------
        X : array of shape (samples, channels) or images, or (samples, steps, channels), or a list of events
            Events are pairs (times, channels) or structured arrays, see `sswim.events.as_events`.
        y : array of shape (samples,)
            Labels of any type.
        """
        with self._fitting():
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        self._check_params()
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        values = self._values(X, fitting=True)
        if len(values) < 4:
            raise ValueError(f"X must hold at least 4 samples, got {len(values)} (n_samples = {len(values)}).")
        if len(values) != len(y):
            raise ValueError(f"X and y must hold equally many samples, got {len(values)} and {len(y)}.")
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {self.classes_[0]!r}.")
        seed = int(np.random.SeedSequence(Randomness(self.random_state)._seed).generate_state(1)[0])
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        kept = len(y) - max(1, int(len(y) * self.validation))
        if len(np.unique(labels[order[:kept]])) < 2:
            raise ValueError("y: the training part holds one class only. Pass more samples of the others.")
        self.network_ = self._build_network(*self._input_shape)
        samples = self._samples(values[order], torch.from_numpy(labels)[order], seed)
        numbers = torch.arange(len(y))
        train, held_out = Subset(samples, numbers[:kept]), Subset(samples, numbers[kept:])
        if self.train == "gradient":
            self.report_ = self._start(train)
        elif self.readout == "direct":
            self.report_ = direct_classes.fit(self, samples, train, held_out)
        else:
            self.report_ = voltage_classes.fit(self, train, held_out)
        if self.train != "sample":
            self._train(train, held_out)
        if self.readout == "spikes" and self.normalize:
            voltage_classes.normalize(self, held_out)
        if self.readout != "direct" or self.train != "sample":
            self.temperature_ = self._fit_temperature(held_out)

    def _check_params(self) -> None:
        if self.readout not in READOUTS:
            raise ValueError(f"readout must be one of {', '.join(map(repr, READOUTS))}, got {self.readout!r}.")
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(map(repr, LOSSES))}, got {self.loss!r}.")
        if self.integrate not in ("horizon", "all"):
            raise ValueError(f"integrate must be 'horizon' or 'all', got {self.integrate!r}.")
        if self.train not in TRAININGS:
            raise ValueError(f"train must be one of {', '.join(map(repr, TRAININGS))}, got {self.train!r}.")
        check_gradient(self.gradient, self.train)
        if self.class_weight is not None and self.readout != "direct":
            raise ValueError("class_weight needs readout='direct'.")
        check_integer("horizon", self.horizon, 1), check_integer("initial_batch", self.initial_batch, 2)
        check_positive("delta", self.delta), check_fraction("validation", self.validation)
        parse_memory(self.memory)
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}.")

    def _samples(self, values: Any, labels: Tensor, seed: int) -> LabelledSamples:
        """Return samples as the network takes them."""
        scale = getattr(self, "range_", None)
        voltage, horizon = 1 + self.delta, self.network_.horizon
        return LabelledSamples(values, labels, len(self.classes_), horizon, voltage, self.encoder_, seed, scale)

    def _weights(self) -> Any:
        """Return the step that makes the weights, within receptive fields if there are any."""
        if self.fields is None:
            return self.weights
        if not isinstance(self.fields, str):
            shape = tuple(self.fields)
        elif self.fields != "auto":
            raise ValueError(f"fields must be 'auto', None or a layout of channels such as (28, 28), got {self.fields!r}.")
        elif self.encoder_ is None or len(self._layout) < 2:
            return self.weights
        else:
            shape = self._layout
        channels = self._input_shape[1]
        if math.prod(shape) != channels:
            raise ValueError(f"fields: a layout of {shape} has {math.prod(shape)} channels, but X has {channels}.")
        return ReceptiveFields(shape, resolve("weights", self.weights, WEIGHTS, "directions"))

    def _build_network(self, steps: int, channels: int) -> SpikingNetwork:
        direct = self.readout == "direct"
        return SpikingNetwork(
            inputs=channels,
            outputs=len(self.classes_),
            window=steps,
            horizon=1 if direct else self.horizon,
            hidden=self.hidden,
            kernel=self.kernel,
            deeper_kernel=self.deeper_kernel,
            output="direct" if direct else "trajectory",
            traces=self.traces if direct else None,
            spiking_output=self.readout == "spikes",
            dtype=DTYPES[self.dtype],
        ).to(self.device)

    def _temporal(self) -> Any:
        if self.temporal != "auto":
            return self.temporal
        steps = self.network_.window
        return TemporalGrid(max_delay=0.3 * steps, min_support=3.0, max_support=max(0.6 * steps, 4.0), growing=False)

    def _hidden_options(self) -> dict[str, Any]:
        """Return the steps that make the hidden layers."""
        return {
            "temporal": self._temporal(),
            "input_metric": self.input_metric,
            "deeper_metric": self.deeper_metric,
            "output_metric": "class",
            "pairs": self.pairs,
            "weights": self._weights(),
            "normalizer": self.normalizer,
        }

    @property
    def _first(self) -> int:
        """First step that the output is integrated from."""
        return self.network_.start if self.integrate == "horizon" else 0

    @property
    def _size(self) -> int:
        """How many samples are simulated at once."""
        return batch_size(self.network_, parse_memory(self.memory))

    def _batches(self, count: int) -> list[slice]:
        return batches(count, self._size)

    def _start(self, train: Subset) -> SamplingReport:
        """Begin from scratch."""
        few = torch.arange(min(len(train), self.initial_batch))
        initialize(self.network_, dense(train.inputs(few)), random_state=self.random_state)
        return untrained_report(self.network_, 0.0, len(train), 0)

    def _train(self, train: Subset, held_out: Subset) -> None:
        """Train by gradients, on the output's mean voltages."""

        def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
            return torch.nn.functional.cross_entropy(output.mean(dim=1), target.mean(dim=1).argmax(dim=1))

        options = {"loss": cross_entropy, "penalty": 0.0}
        if self.train == "gradient":
            options["learning_rate"] = SCRATCH["learning_rate"]
        with voltage_output(self.network_):
            train_further(self, train, held_out, self.report_, options)

    def _decision(self, samples: LabelledSamples | Subset) -> Tensor:
        """Return the decision values (samples, classes)."""
        network = self.network_
        # In float64, so that a sample's values do not depend on the batch it comes in.
        readout = copy.deepcopy(network.readout).double()
        look = network.features() if network.direct else network.predictor(self._first)
        parts = []
        with torch.no_grad():
            for part in self._batches(len(samples)):
                found = look(samples.inputs(part))
                parts.append(readout(found.double()[:, None])[:, 0].T if network.direct else found.sum(dim=1).double())
        return torch.cat(parts).cpu()

    def _fit_temperature(self, held_out: Subset) -> float:
        """Return the temperature of least cross entropy on the validation part."""
        few = Subset(held_out, torch.arange(min(len(held_out), 5000)))
        return fit_temperature(self._decision(few), few.targets(slice(None))[:, 0].argmax(dim=1))

    def _unlabelled(self, X: Any) -> LabelledSamples:
        """Return samples to be classified as the network takes them."""
        check_is_fitted(self)
        values = self._values(X)
        return self._samples(values, torch.zeros(len(values), dtype=torch.long), 0)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return how much speaks for each class: (samples, classes), or (samples,) for the second of two classes."""
        decision = self._decision(self._unlabelled(X)).numpy()
        return decision[:, 1] - decision[:, 0] if len(self.classes_) == 2 else decision

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, (samples, classes), calibrated on the validation part."""
        values = torch.from_numpy(self.decision_function(X))
        if len(self.classes_) == 2:
            values = torch.stack([torch.zeros_like(values), values], dim=1)
        return torch.softmax(values / self.temperature_, dim=1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each sample."""
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]

    def summary(self) -> Summary:
        """Return what was fitted and how: print it for a table, or take `to_dict()` of it."""
        check_is_fitted(self)
        return summarize(self.network_, self.report_, title=f"Classifier, {len(self.classes_)} classes", unit="sample")
