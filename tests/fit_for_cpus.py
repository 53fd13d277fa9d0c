"""Fit some models and write their parameters and errors, for `test_cpus.py`: ``python fit_for_cpus.py FILE THREADS``."""

import sys
import warnings

import numpy as np
import torch

from sswim import Forecaster, Steps
from sswim.datasets import load_wind_farm

MODELS = {
    "paper": {"hidden": (60,)},
    "paper, dist": {"hidden": (60,), "steps": Steps(weights="dist")},
    "paper, two layers": {"hidden": (40, 20)},
}


def main(file, threads):
    torch.set_num_threads(threads)
    wind = load_wind_farm().resample("3h").mean()
    train, test = wind["2014-10":"2015-03"], wind["2015-04":"2015-05"]
    found = {}
    for name, options in {**MODELS, "default": None}.items():
        make = Forecaster(24, 8) if options is None else Forecaster.paper(24, 8, **options)
        model = make.set_params(random_state=0, verbose=0).fit(train)
        for number, layer in enumerate(model.network_.layers):
            for parameter, value in layer.named_parameters():
                found[f"{name}/{number}/{parameter}"] = value.detach().numpy()
        found[f"{name}/rse"] = np.array(model.evaluate(test).rse)
    np.savez(file, **found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], int(sys.argv[2]))
