"""What all estimators have in common: a fit that fails loses nothing, and models go to files and come back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

__all__ = ["DTYPES", "TRAININGS", "Estimator"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TRAININGS = ("sample", "gradient", "sample+gradient")


class Estimator(BaseEstimator):
    """A scikit-learn estimator that can be saved."""

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Forget what was fitted before; if the fit inside fails, the estimator is as it was."""
        before = {name: self.__dict__.pop(name) for name in list(vars(self)) if name.endswith("_")}
        try:
            yield
        except BaseException:
            for name in [name for name in vars(self) if name.endswith("_")]:
                delattr(self, name)
            self.__dict__.update(before)
            raise

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file that holds numbers and JSON only; it appears whole or not at all."""
        from sswim.io import save

        check_is_fitted(self)
        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote. Nothing in the file is executed."""
        from sswim.io import load

        return load(path, cls)
