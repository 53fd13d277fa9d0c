"""Forecast a real wind farm a day ahead: fit, evaluate, intervals, picture.

python examples/forecast_wind_farm.py [FOLDER]
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from sswim import Forecaster
from sswim.datasets import load_wind_farm
from sswim.evaluate import Persistence, RidgeOnLags
from sswim.plots import plot_errors, plot_forecast

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
wind = load_wind_farm().resample("h").mean()  # a DataFrame: hours x (power in kW, wind in m/s)
train, test = wind[:"2015-08"], wind["2015-09":]

model = Forecaster(window=48, horizon=24, random_state=0, verbose=0).fit(train)
scores = {
    "persistence": Persistence(48, 24).evaluate(test),
    "ridge on lags": RidgeOnLags(48, 24).fit(train).evaluate(test),
    "sswim": model.evaluate(test),
}
for name, score in scores.items():
    print(f"{name:14}{score}")
print(f"within the 90 % intervals: {scores['sswim'].coverage:.1%} of all values")

forecast = model.predict(train)  # the 24 hours that follow on `train`, same columns, index continued
low, high = model.predict_interval(train, coverage=0.9)
turbine = "power_R80711"
print(f"{forecast.index[0]}: {forecast[turbine].iloc[0]:.0f} kW, {low[turbine].iloc[0]:.0f} to {high[turbine].iloc[0]:.0f} kW")

figure = Figure(figsize=(9, 6), layout="constrained")
above, below = figure.subplots(2, 1)
plot_forecast(model, test, turbine, at=1200, ax=above)
above.set(ylabel="power of one turbine, kW")
plot_errors({name: score.per_step["rse"] for name, score in scores.items()}, below)
below.set(xlabel="hours ahead")
figure.savefig(folder / "forecast_wind_farm.png", dpi=110)
