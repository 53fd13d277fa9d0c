import numpy as np
import pytest
import torch

from sswim import Forecaster
from sswim.plots import plot_errors, plot_forecast, plot_growth, plot_spikes


@pytest.fixture(scope="module")
def model(wind):
    return Forecaster.paper(24, 6, hidden=(30,), random_state=0, verbose=0).fit(wind)


def test_forecast_plot_shows_window_truth_and_forecast(model, wind):
    ax = plot_forecast(model, wind, "wind_R80711", at=100)
    window, truth, forecast = (line.get_ydata() for line in ax.lines[:3])
    np.testing.assert_allclose(window, wind["wind_R80711"].iloc[76:100])
    np.testing.assert_allclose(truth, wind["wind_R80711"].iloc[100:106])
    np.testing.assert_allclose(forecast, model.predict(wind.iloc[:100])["wind_R80711"], rtol=1e-5)
    assert ax.get_ylabel() == "wind_R80711"


def test_spike_plot_shows_every_spike(model, wind):
    ax = plot_spikes(model, wind, at=100)
    x = model._encoder(torch.from_numpy(wind.iloc[76:100].to_numpy(dtype=float))).signals.permute(2, 1, 0)
    assert len(ax.collections[0].get_offsets()) == int(model.network_.simulate(x).spikes[0].sum())


def test_forecast_plot_of_a_direct_output_has_its_interval(wind):
    model = Forecaster(24, 6, hidden=(20,), covariates=["wind_R80711"], random_state=0, verbose=0).fit(wind)
    ax = plot_forecast(model, wind, "power_R80711", at=200)
    low, high = model.predict_interval(wind.iloc[:200])
    band = ax.collections[0].get_paths()[0].get_extents()
    assert band.ymin == pytest.approx(low["power_R80711"].min()) and band.ymax == pytest.approx(high["power_R80711"].max())
    with pytest.raises(ValueError, match="'wind_R80711' is a covariate"):
        plot_forecast(model, wind, "wind_R80711")


def test_spike_plot_of_a_shared_network_shows_one_channel(wind):
    model = Forecaster(24, 6, hidden=(30,), random_state=0, verbose=0).fit(wind)
    one, other = (len(plot_spikes(model, wind, at=100, channel=c).collections[0].get_offsets()) for c in (0, "wind_R80711"))
    assert one > 0 and other > 0 and one != other


def test_error_plot_has_a_line_per_model(model, wind):
    scores = model.evaluate(wind).per_step["rse"]
    assert len(plot_errors({"a": scores, "b": scores}).lines) == 2


def test_bad_places_are_named(model, wind):
    with pytest.raises(ValueError, match="at must lie between window=24"):
        plot_forecast(model, wind, at=3)
    with pytest.raises(ValueError, match="no column 'nix'"):
        plot_forecast(model, wind, "nix")
    with pytest.raises(ValueError, match="channel must be between 0 and 7"):
        plot_forecast(model, wind, 8)


def test_growth_plot_shows_every_point_and_exponent():
    points = {"windows": [{"size": n, "seconds": n / 100, "memory": 2.0**30} for n in (100, 200, 400)]}
    figure = plot_growth({"points": points, "result": {"windows": {"seconds": 1.0, "memory": 0.0}}})
    time, memory = figure.axes
    assert time.get_xscale() == time.get_yscale() == memory.get_yscale() == "log"
    np.testing.assert_allclose(time.lines[0].get_xydata(), [[100, 1], [200, 2], [400, 4]])
    np.testing.assert_allclose(memory.lines[0].get_ydata(), 1024)
    assert "exponent 1.00" in time.get_legend().get_texts()[0].get_text()
