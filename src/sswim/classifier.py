"""Classification in the manner of scikit-learn, by a spiking network that is sampled, not trained by gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from sswim.classes import ClassModel, SamplesPast, check_groups, labelled_samples, samples_seed, training_order
from sswim.data.augment import Augmentation, augmented, check_augment
from sswim.data.events import ExactEvents
from sswim.data.inputs import InputEncoder, Values, check_encoder
from sswim.data.spikes import SpikeEncoder
from sswim.data.windows import Split
from sswim.evaluate.costs import Costs
from sswim.gradient.training import TRAININGS, Gradient, improve, start_from_scratch
from sswim.hidden import Fields, Hidden, changes_of, check_fields, check_layers, event_encoder, suited
from sswim.network.grid import Convolution
from sswim.network.network import KernelName, SpikingNetwork, resolve_kernels
from sswim.options import Mistakes, Run, Seed, check_estimator, resolve_kind
from sswim.paper import PAPER_CLASSES, Switches, paper_training
from sswim.profiles import Neurons, Profile, bits_of, neurons_of
from sswim.readout.base import ClassReadoutOptions, Shape
from sswim.readout.counts import Counts
from sswim.readout.voltage import Spikes, Voltage
from sswim.recordings import Recording, record_samples
from sswim.report import Facts, Summary, summarize
from sswim.sampling import STEPS, ResolvedSteps, Steps, sample_network
from sswim.updating import UpdatableClassifier

__all__ = ["Classifier"]

READOUTS: dict[str, ClassReadoutOptions] = {"direct": Counts(), "voltage": Voltage(), "spikes": Spikes()}


# The largest weight of a class.
HEAVIEST = 1e12


@dataclass(frozen=True)
class _Options:
    """A classifier's options as objects."""

    readout: ClassReadoutOptions
    steps: ResolvedSteps
    training: Gradient | None
    neurons: Neurons


class Classifier(ClassifierMixin, UpdatableClassifier):
    """Classify images, or signals and spikes in time, with a spiking network that is sampled.

    Parameters
    ----------
    hidden : sequence of int or Convolution, or "auto"
        One width, or `Convolution`, per hidden layer. Default: filters for images, 1,000 neurons for everything else.
    encoder : str, SpikeEncoder, ExactEvents or None
        How intensities become spikes: ``"image"`` (regular spikes on few steps; currents if a `Convolution` follows),
        ``"rate"``, ``"poisson"`` (as in the paper), ``"latency"``, ``"current"``, or an object from `sswim.data` with other
        settings; inputs may have any shape then. None for inputs (samples, steps, channels) that have a time of their own,
        `ExactEvents` for ragged samples of events (times, channels). ``"auto"`` is `ExactEvents` for events, None for inputs of
        three dimensions, and ``"image"`` otherwise.
    fields : "auto", sequence of int or None
        How channels are laid out, such as (28, 28) for flattened images. A `Convolution` needs that, and each neuron of a dense
        first layer sees a patch only then, see `sswim.steps.ReceptiveFields`. ``"auto"`` takes the layout of images (samples,
        rows, columns) that an encoder is named for, and of cameras' events. Training from scratch has no fields.
    kernel : str, callable, or sequence of these
        Kernels of the hidden layers, as in `Forecaster`. Default: ``"hat"``, the neurons of a `profile`, or neurons that
        integrate without a leak for images that enter a `Convolution` as currents.
    readout : {"direct", "voltage", "spikes"}, Counts, Voltage or Spikes
        ``"direct"`` reads how often each neuron of every layer fired. With the others the output layer's voltages follow the
        paper's surrogate, and the class is that of the largest integral, or of the most spikes.
    steps : str or Steps
        The steps that sample the hidden layers: ``"classify"``, ``"paper"``, or a `Steps` object.
    class_weight : dict, "balanced" or None
        How much samples of each class count in the output weights of a direct readout.
    augment : None, Augmentation or list of these
        Changed copies of the training samples, which are made as they are needed: `sswim.data.Shifts`, `Mirror` and `Stretch`.
        Several are combined in all ways. Validation samples have no copies. Default: none.
    validation : float
        Part of the samples that the regularisation is chosen on.
    training : {None, "sample+gradient", "gradient"}, Gradient or FromScratch
        Whether surrogate gradients train the sampled network further, or one of random parameters; the loss is the cross
        entropy. Default: neither.
    profile : {None, "nir", "xylo", "speck", "loihi"} or Profile
        Limits of a chip, as in `Forecaster`. Then the readout ``"direct"`` reads traces that fade slowly, nearly counts.
    dtype, device, memory, executor, random_state, verbose
        As in `Forecaster`.

    Attributes
    ----------
    model_ : ClassModel
        Everything that a prediction or a file needs.
    classes_ : array of shape (classes,)
    network_ : SpikingNetwork
    report_ : SamplingReport
    training_ : TrainingReport or None
        What gradient training did.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = Classifier(hidden=(200,), random_state=0, verbose=0).fit(X[:1200], y[:1200])
    >>> bool(model.score(X[1200:], y[1200:]) > 0.9)
    True
    """

    model_: ClassModel
    model_type = ClassModel
    named_options: ClassVar[dict[str, Facts]] = {"readout": READOUTS, "steps": STEPS, "training": TRAININGS}

    def __init__(
        self,
        hidden: Sequence[int | Convolution] | str = "auto",
        *,
        encoder: str | SpikeEncoder | ExactEvents | None = "auto",
        fields: Fields = "auto",
        kernel: KernelName | Sequence[KernelName] = "auto",
        readout: str | ClassReadoutOptions = "direct",
        steps: str | Steps = "classify",
        class_weight: str | Mapping[object, float] | None = None,
        augment: Augmentation | Sequence[Augmentation] | None = None,
        validation: float = 1 / 6,
        training: str | Gradient | None = None,
        profile: str | Profile | None = None,
        dtype: str = "float32",
        device: str = "cpu",
        memory: str | int = "1GB",
        executor: object = None,
        random_state: Seed = None,
        verbose: int = 1,
    ) -> None:
        self.hidden = hidden
        self.encoder = encoder
        self.fields = fields
        self.kernel = kernel
        self.readout = readout
        self.steps = steps
        self.class_weight = class_weight
        self.augment = augment
        self.validation = validation
        self.training = training
        self.profile = profile
        self.dtype = dtype
        self.device = device
        self.memory = memory
        self.executor = executor
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, hidden: Sequence[int] = (1000,), **options: Any) -> Self:
        """Return the paper's classifier, to the letter: Poisson spikes over 100 steps, and an output of surrogate voltages.

        `options` are those of the class, and switches to ours as in `Forecaster.paper`. ``readout="spikes"`` counts the spikes
        of the output.
        """
        switches = Switches(**{name: options.pop(name) for name in Switches().get_params() if name in options})
        readout, training = switches.voltage(options.pop("readout", "voltage")), paper_training(options.pop("training", None))
        paper = {
            "encoder": "poisson",
            "fields": None,
            "kernel": "hat",
            "readout": readout,
            "steps": PAPER_CLASSES,
            "training": training,
        }
        return cls(hidden, **{**paper, **options})

    def fit(
        self, X: object, y: npt.ArrayLike, *, groups: npt.ArrayLike | None = None, checkpoint: str | Path | None = None
    ) -> Self:
        """Fit the network to samples and their classes.

        Parameters
        ----------
        X : array of shape (samples, channels) or images, or (samples, steps, channels), or a list of events
            Events are pairs (times, channels) or structured arrays, see `sswim.data.as_events`. Samples need not fit into
            memory: X may be a `numpy.memmap`, an array of Zarr or dask, the path of one, or `sswim.data.StoredEvents`.
        y : array of shape (samples,)
            Labels of any type.
        groups : array of shape (samples,), optional
            The group of each sample, such as its speaker or its patient, if the model shall serve new groups. Whole groups are
            held out for validation. With ``Counts(loss="squared_error")`` and up to 3,000 features, groups are left out in
            turn (ten parts at most), and the penalty is the best one for the groups that were left out. Default: samples are
            held out one by one.
        checkpoint : path, optional
            Folder that partial sums are written to. A fit that was stopped goes on from them, if `random_state` is a number.
        """
        options, adder = self._resolved(), self._adder(checkpoint)
        classes, labels = self._labels(y)
        inputs, values = InputEncoder.fit(X, event_encoder(X, self.encoder, self.hidden))
        self._check(inputs, values, classes, labels, options)
        group = check_groups(groups, len(labels))
        hidden = suited(self.hidden, self.encoder, self.kernel, self.fields, inputs, options.steps, options.neurons)
        inputs, options = hidden.inputs, replace(options, readout=hidden.readout(options.readout))
        with Run(self.memory, self.random_state, self.verbose, keep_sums=True, adder=adder) as run:
            seed = samples_seed(run.random.seed)
            order, kept = training_order(values, torch.from_numpy(labels), self.validation, seed, group)
            shuffled = torch.from_numpy(labels)[order]
            if len(shuffled[:kept].unique()) < 2:
                raise ValueError(
                    "y: the training part holds one class only. Pass more samples of the others"
                    + (", or groups of several classes." if group is not None else ".")
                )
            weights = None
            if self.class_weight is not None:
                weights = self._class_weights(classes, labels)
            group = None if group is None else group[order]
            samples = labelled_samples(
                inputs, values[order], shuffled, len(classes), options.readout, seed, weights, groups=group
            )
            split = augmented(Split.at(samples, kept), changes_of(self.augment, inputs, self.fields))
            network = self._network(hidden, len(classes), options, run)
            if options.training is None or not options.training.from_scratch:
                report = sample_network(network, split, hidden.steps, options.readout, run)
            else:
                report = start_from_scratch(network, split, options.training, run)
            if options.training is not None:
                report = improve(network, split, options.readout, options.training, report, run)
            report = replace(report, solution=options.readout.finish(network, split, report.solution, run))
        past = SamplesPast(len(labels), seed, self.validation, weights)
        self.model_ = ClassModel(inputs, network, options.readout, report, classes, run.budget, past)
        return self

    def _resolved(self) -> _Options:
        """Check every option, and return them as objects; all mistakes are reported at once."""
        mistakes = Mistakes()
        check = mistakes.check
        layers = check(check_layers, "hidden", self.hidden) or (1,)
        check_estimator(
            mistakes,
            validation=self.validation,
            dtype=self.dtype,
            device=self.device,
            memory=self.memory,
            random_state=self.random_state,
        )
        neurons = neurons_of(self.profile, self.kernel, "hat", self.training, mistakes)
        with mistakes.collect():
            resolve_kernels("kernel", neurons.kernel, len(layers) if isinstance(layers, Sequence) else 1)
        steps = check(resolve_kind, "steps", self.steps, STEPS, Steps)
        readout = check(resolve_kind, "readout", self.readout, READOUTS, Counts, Voltage)
        options = _Options(
            check(neurons.readout, readout, isinstance(self.readout, str)),
            neurons.steps(steps).resolved(mistakes) if isinstance(steps, Steps) else steps,
            None if self.training is None else check(resolve_kind, "training", self.training, TRAININGS, Gradient),
            neurons,
        )
        with mistakes.collect():
            check_encoder("encoder", self.encoder)
        with mistakes.collect():
            check_fields(self.fields)
        with mistakes.collect():
            check_augment("augment", self.augment)
        if self.training is not None and any(isinstance(layer, Convolution) for layer in layers):
            with mistakes.collect():
                raise ValueError("training: a Convolution is sampled, not trained: pass training=None.")
        if self.training is not None and isinstance(options.readout, Counts) and options.readout.roots is True:
            with mistakes.collect():
                raise ValueError("readout: the root of a count of 0 has no slope: pass Counts(roots=False), or training=None.")
        if self.class_weight is not None and (not isinstance(options.readout, Counts) or self.training is not None):
            with mistakes.collect():
                raise ValueError("class_weight needs readout='direct' and training=None: nothing else weighs classes.")
        mistakes.report()
        return options

    def _labels(self, y: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the classes, and the number of each sample's class."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        try:
            flat = column_or_1d(y, warn=True)
            check_classification_targets(flat)
            if flat.dtype.kind in "biuf":
                flat = flat.astype(flat.dtype.newbyteorder("="))
            return np.unique(flat, return_inverse=True)
        except (TypeError, ValueError) as error:  # labels of several types cannot be sorted
            raise type(error)(f"y must hold one label per sample, all of one type. {error}") from None

    def _class_weights(self, classes: np.ndarray, labels: np.ndarray) -> torch.Tensor:
        """Return the weight of each class."""
        found = compute_class_weight(self.class_weight, classes=classes, y=classes[labels])
        if not (np.isfinite(found) & (found >= 0) & (found <= HEAVIEST)).all() or not found.any():
            raise ValueError(
                f"class_weight: weights must lie between 0 and {HEAVIEST:g}, and one above 0, got {found.tolist()}."
            )
        return torch.from_numpy(found)

    def _check(self, inputs: InputEncoder, values: Values, classes: np.ndarray, labels: np.ndarray, options: _Options) -> None:
        """Refuse samples, labels and options that do not fit together."""
        if isinstance(inputs.encoder, ExactEvents) and inputs.encoder.exact:
            whole = "needs events on whole steps: pass encoder=ExactEvents(exact=False, ...)."
            if options.training is not None:
                raise ValueError(f"training: gradients {whole.replace('needs', 'need')}")
            if options.neurons.profile is not None:
                raise ValueError(f"profile: {options.neurons.name} {whole}")
        if len(values) < 4:
            raise ValueError(f"X must hold at least 4 samples, got {len(values)} (n_samples = {len(values)}).")
        if len(values) != len(labels):
            raise ValueError(f"X and y must hold equally many samples, got {len(values)} and {len(labels)}.")
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {classes[:1].tolist()[0]!r}.")

    def _network(self, hidden: Hidden, classes: int, options: _Options, run: Run) -> SpikingNetwork:
        """Return a network of the right shape, its parameters still to be set."""
        dtype, horizon = torch.float64 if self.dtype == "float64" else torch.float32, options.readout.horizon
        inputs = hidden.inputs
        shape = Shape(inputs.channels, classes, inputs.steps, horizon, hidden.widths, 0, run.budget, dtype)
        network = SpikingNetwork(
            inputs.channels,
            classes,
            window=inputs.steps,
            horizon=horizon,
            hidden=hidden.layers,
            layout=hidden.layout,
            kernel=hidden.neurons.kernel,
            refractory=hidden.neurons.refractory,
            readout=options.readout.build(shape),
            dtype=dtype,
        )
        return hidden.neurons.check(network).to(self.device)

    @property
    def classes_(self) -> np.ndarray:
        """The classes."""
        return self._fitted("classes_").classes

    @property
    def n_features_in_(self) -> int:
        """Number of numbers in a sample."""
        return self._fitted("n_features_in_").inputs.features

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the columns, if a DataFrame with text as names was given."""
        names = self._fitted("feature_names_in_").inputs.names
        if not names:
            raise AttributeError("feature_names_in_: the samples had no names of columns.")
        return np.asarray(names, dtype=object)

    def decision_function(self, X: object) -> np.ndarray:
        """Return the decision value of each class: (samples, classes), or (samples,) for the second of two classes."""
        check_is_fitted(self)
        decision = self.model_.decisions(self.model_.samples(X, type(self).__name__)).numpy()
        return decision[:, 1] - decision[:, 0] if len(self.classes_) == 2 else decision

    def predict_proba(self, X: object) -> np.ndarray:
        """Return the probability of each class, (samples, classes), calibrated on the validation part."""
        values = torch.from_numpy(self.decision_function(X))
        if len(self.classes_) == 2:
            values = torch.stack([torch.zeros_like(values), values], dim=1)
        return torch.softmax(values / self.model_.report.solution.temperature, dim=1).numpy()

    def predict(self, X: object) -> np.ndarray:
        """Return the class of each sample."""
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]

    def simulate(self, X: object, *, potentials: bool = False) -> Recording:
        """Return the spikes of the hidden neurons in every sample, and their membrane potentials if asked for.

        The arrays have the shape (samples, steps, neurons). What does not fit into `memory` is refused.
        """
        check_is_fitted(self)
        return record_samples(self.model_, X, potentials=potentials)

    def costs(self, X: object, *, bits: int | None = None, sparse: bool = False) -> Costs:
        """Return spikes, operations, bits and energy of a sample, averaged over those of `X`.

        `bits` are those of a weight. Default: those of the `profile`, else 32, or 64 with float64. With `sparse`, weights of 0
        cost no operations.
        """
        check_is_fitted(self)
        chosen = bits_of(self.profile) if bits is None else bits
        return self.model_.costs(self.model_.samples(X, type(self).__name__), chosen, sparse)

    def summary(self) -> Summary:
        """Return what was fitted and how: print it for a table, or take `to_dict()` of it."""
        check_is_fitted(self)
        model = self.model_
        return summarize(
            model.network, model.report, title=f"Classifier, {len(model.classes)} classes", unit="sample", units="samples"
        )
