"""Shared by both estimators: nested options in `set_params`, fitted attributes, saving and loading."""

from __future__ import annotations

import numbers
import os
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sswim import io
from sswim.data.series import Breaks
from sswim.network.network import SpikingNetwork
from sswim.options import Adder, Options, Run, Seed, nearest
from sswim.page import Page, make_page
from sswim.profiles import Profile
from sswim.report import Facts, SamplingReport, TrainingReport
from sswim.scale import Kept, resolve_executor

__all__ = ["Estimator"]


class FittedModel(Protocol):
    """What every fitted model has."""

    @property
    def network(self) -> SpikingNetwork:
        """The network."""
        ...

    @property
    def report(self) -> SamplingReport:
        """What the fit did."""
        ...

    @property
    def memory(self) -> int:
        """Budget in bytes."""
        ...


M = TypeVar("M", bound=FittedModel)


class Estimator(BaseEstimator, Generic[M]):
    """A scikit-learn estimator whose options may be objects, and which can be saved."""

    model_: M
    profile: str | Profile | None
    executor: object
    random_state: Seed
    verbose: int
    # The class of `model_`.
    model_type: ClassVar[type]

    # The named variants of each parameter that takes an option object.
    named_options: ClassVar[dict[str, Facts]] = {}

    def _options_of(self, name: str, value: object) -> Options | None:
        """Return the option object that a parameter's value stands for, if there is one."""
        found = self.named_options.get(name, {}).get(value) if isinstance(value, str) else value
        return found if isinstance(found, Options) else None

    def get_params(self, deep: bool = True) -> Facts:
        """Return the parameters; with `deep` also those of option objects, as ``steps__weights``."""
        params = super().get_params(deep=False)
        if deep:
            for name, value in list(params.items()):
                options = self._options_of(name, value)
                if options is not None:
                    params |= {f"{name}__{key}": inner for key, inner in options.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``steps__weights="random"`` reaches inside an option object, and replaces it by another."""
        values = super().get_params(deep=False)
        inside: dict[str, Facts] = {}
        for key, value in params.items():
            name, _, inner = key.partition("__")
            if name not in values:
                kind, valid = type(self).__name__, ", ".join(map(repr, values))
                raise ValueError(f"{kind} has no parameter {name!r}.{nearest(name, list(values))} Valid names: {valid}.")
            if inner:
                inside.setdefault(name, {})[inner] = value
            else:
                values[name] = value
        for name, changes in inside.items():
            options = self._options_of(name, values[name])
            if options is None:
                raise ValueError(f"{name}: {values[name]!r} has no options to set. Set {name} to an object first.")
            values[name] = options.replace(**changes)
        for name, value in values.items():
            setattr(self, name, value)
        return self

    def _adder(self, checkpoint: str | os.PathLike[str] | None = None) -> Adder | None:
        """Return who computes sums, and keeps them in a folder on request; None for this process alone."""
        if self.executor is None and checkpoint is None:
            return None
        if checkpoint is not None and not isinstance(self.random_state, numbers.Integral):
            raise ValueError(
                f"checkpoint needs a number as random_state, got {self.random_state!r}: otherwise a second start samples other "
                "hidden layers, and the sums are of no use to it."
            )
        executor = resolve_executor(self.executor)
        executor.prepare()
        return (executor if checkpoint is None else Kept(executor, checkpoint)).sums

    def _update(self) -> Run:
        """Return how an update of the fitted model is run."""
        return Run(self.model_.memory, 0, self.verbose, True, self._adder())

    def _fitted(self, name: str) -> M:
        """Return the fitted model, for the attribute `name`."""
        if "model_" not in vars(self):
            raise AttributeError(f"{name}: this {type(self).__name__} is not fitted yet.")
        return self.model_

    @property
    def network_(self) -> SpikingNetwork:
        """The fitted network."""
        return self._fitted("network_").network

    @property
    def report_(self) -> SamplingReport:
        """What every step of the fit chose."""
        return self._fitted("report_").report

    @property
    def training_(self) -> TrainingReport | None:
        """What gradient training did, if there was any."""
        return self._fitted("training_").report.solution.training

    def report(self, X: object, y: object = None, *, train: object = None, breaks: Breaks = None) -> Page:
        """Return a page to look at: what the model is, and what it does on data that it has not seen.

        A notebook shows it, and ``.save("report.html")`` writes it to one file that needs nothing else. Needs
        ``pip install 'sswim[report]'``.

        Parameters
        ----------
        X, y : as in `evaluate` of a forecaster, or `score` of a classifier
            A classifier's `y` may be omitted: nothing is then said of mistakes.
        train : as `X` in `fit` of a forecaster, or a pair (X, y) for a classifier, optional
            What the model was fitted to: the page then shows the pair of samples that made each neuron.
        breaks : int or sequence of int, optional
            As in `Forecaster.fit`.
        """
        check_is_fitted(self)
        return make_page(self.model_, self.get_params(deep=False), X, y, train=train, breaks=breaks)

    def save(self, path: str | os.PathLike[str], *, updatable: bool = False) -> None:
        """Write the fitted model to one file that holds numbers and JSON only; it appears whole or not at all.

        With `updatable` the sums of the fit are written too: the file is much larger, and the model that is read from it can
        be updated (`partial_fit`, `merge`).
        """
        check_is_fitted(self)
        io.save(self, path, updatable=updatable)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote. Nothing in the file is executed."""
        return io.load(path, cls)
