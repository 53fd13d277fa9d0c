"""Fitted estimators as torch modules: from the data's own units to forecasts in these, or to probabilities."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sswim.classes import ClassModel
from sswim.data.encoder import FAR
from sswim.data.events import ExactEvents
from sswim.data.spikes import Rate
from sswim.export.frozen import FrozenNetwork
from sswim.forecasts import ForecastModel
from sswim.network.events import dense
from sswim.readout.voltage import Voltage

__all__ = ["FrozenClasses", "FrozenForecasts"]


class FrozenForecasts(nn.Module):
    """What `Forecaster.predict` does, as one module.

    A window that holds NaN or infinity has forecasts of NaN.

    Parameters
    ----------
    model : ForecastModel
    dtype : torch.dtype
        Of rows, of forecasts, and of everything but the hidden layers and output voltages.
    """

    low: Tensor
    high: Tensor
    offset: Tensor
    span: Tensor
    floor: Tensor
    order: Tensor

    def __init__(self, model: ForecastModel, dtype: torch.dtype) -> None:
        super().__init__()
        encoder = self.encoder = model.encoder
        self.network, self.dtype = FrozenNetwork(model.network, dtype), dtype
        self.seen = torch.float64 if encoder.precise and dtype == torch.float64 else torch.float32
        self.window, self.horizon, self.outputs = model.window, model.horizon, model.network.outputs
        for name in ("low", "high", "offset", "span"):
            self.register_buffer(name, torch.from_numpy(getattr(encoder, name)).to(dtype, copy=True))
        self.register_buffer("floor", torch.from_numpy(encoder.floor[encoder.channels]).to(dtype))
        # Where each channel lies among those that move, followed by those that rest.
        found = [*encoder.moving, *encoder.resting]
        tables = [] if encoder.calendar is None else encoder.calendar.waves
        self.waves = nn.ParameterList(nn.Parameter(table.to(dtype), requires_grad=False) for table in tables)
        self.register_buffer("order", torch.tensor([found.index(channel) for channel in encoder.channels]))

    def forward(self, rows: Tensor, future: Tensor | None = None, time: Tensor | None = None) -> Tensor:
        """Map rows (batch, window, columns) to forecasts (batch, horizon, channels).

        `future` holds what is known ahead (batch, horizon, known), and `time` the wall-clock time of each last row (batch,), in
        whole seconds since 1970.
        """
        fine = torch.isfinite(rows).flatten(1).all(dim=1)
        ahead = None
        if future is not None:
            fine = fine & torch.isfinite(future).flatten(1).all(dim=1)
            future = torch.where(fine[:, None, None], future, 0.0)
            ahead = self._seen(future, list(self.encoder.known)).transpose(1, 2).flatten(1)
        if self.encoder.calendar is not None:
            assert time is not None
            firing = zip(self.waves, self.encoder.calendar.firing(time), strict=True)
            waves = torch.cat([table[neuron] for table, neuron in firing], dim=1)
            ahead = waves if ahead is None else torch.cat([ahead.to(self.dtype), waves], dim=1)
        rows = torch.where(fine[:, None, None], rows, 0.0)
        y = self._decoded(self._outputs(rows, ahead), rows)
        return torch.where(fine[:, None, None], y, float("nan"))

    def _scaled(self, rows: Tensor, columns: list[int]) -> Tensor:
        """Return rows (..., columns) of some columns, scaled."""
        return ((rows - self.offset[columns]) / self.span[columns]).clamp(-FAR, FAR)

    def _seen(self, rows: Tensor, columns: list[int]) -> Tensor:
        """Return them as the hidden layers see them."""
        if self.encoder.scaling.clip:
            rows = torch.minimum(torch.maximum(rows, self.low[columns]), self.high[columns])
        return self._scaled(rows, columns).to(self.seen)

    def _outputs(self, rows: Tensor, ahead: Tensor | None) -> Tensor:
        """Return the network's forecasts (batch, horizon, moving columns), scaled."""
        moving, others = list(self.encoder.moving), list(self.encoder.covariates)
        members = len(moving) if self.encoder.shared else 1  # that have windows of their own

        def apart(values: Tensor) -> Tensor:
            """Return values (batch, window, moving) as samples (batch * members, outputs, window)."""
            return values.transpose(1, 2).reshape(-1, len(moving) // members, self.window)

        past = apart(self._scaled(rows[:, :, moving], moving))
        seen = apart(self._seen(rows[:, :, moving], moving))
        views = self.encoder.views(seen, past).transpose(0, 1).flatten(1, 2)  # (samples, views * outputs, W)
        covariates = self._seen(rows[:, :, others], others).transpose(1, 2).repeat_interleave(members, dim=0)
        x = torch.cat([views, covariates], dim=1)  # (samples, inputs, W)
        read = torch.cat([past, x[:, self.outputs :].to(self.dtype)], dim=1)
        y = self.network(x.transpose(1, 2), read.transpose(1, 2), ahead).to(self.dtype)  # (samples, horizon, outputs)
        if self.encoder.relative:
            y = y + past.mean(dim=2)[:, None]
        return y.reshape(-1, len(moving), self.horizon).transpose(1, 2) if self.encoder.shared else y

    def _decoded(self, y: Tensor, rows: Tensor) -> Tensor:
        """Return forecasts (batch, horizon, channels) in the data's own units, none below its floor."""
        moving = list(self.encoder.moving)
        y = y * self.span[moving] + self.offset[moving]
        if self.encoder.resting:
            still = rows[:, -1:, list(self.encoder.resting)].expand(-1, self.horizon, -1)
            y = torch.cat([y, still], dim=2)
        lowest = torch.minimum(rows[:, :, self.encoder.channels].amin(dim=1), self.floor)
        return torch.maximum(y[:, :, self.order], lowest[:, None])


class FrozenClasses(nn.Module):
    """What `Classifier.predict_proba` does, as one module.

    A sample that holds NaN or infinity has probabilities of NaN.

    Parameters
    ----------
    model : ClassModel
        Its encoder must not draw at random, nor take events at exact times.
    dtype : torch.dtype
        Of samples, of probabilities, and of everything but the hidden layers and output voltages.
    """

    def __init__(self, model: ClassModel, dtype: torch.dtype) -> None:
        super().__init__()
        readout, start = model.readout, None
        if isinstance(readout, Voltage) and readout.integrate == "all":
            start = 0
        self.inputs, self.dtype, self.integrate = model.inputs, dtype, isinstance(readout, Voltage)
        self.network = FrozenNetwork(model.network, dtype, start)
        self._generator = torch.Generator()  # that nothing is drawn from
        self.temperature = model.report.solution.temperature

    def forward(self, samples: Tensor) -> Tensor:
        """Map samples (batch, ...) to probabilities (batch, classes)."""
        fine = torch.isfinite(samples).flatten(1).all(dim=1)[:, None]
        samples = torch.where(fine, samples.flatten(1), 0.0).reshape(samples.shape)
        found = self.probabilities(self.network(self.encoded(samples)))
        return torch.where(fine, found, float("nan"))

    def probabilities(self, output: Tensor) -> Tensor:
        """Return probabilities (batch, classes) from the network's output (batch, steps, classes)."""
        values = output.sum(dim=1) if self.integrate else output[:, 0]
        return torch.softmax(values.to(self.dtype) / self.temperature, dim=1)

    def encoded(self, samples: Tensor) -> Tensor:
        """Return what the network sees of samples: (batch, steps, channels)."""
        encoder, scale = self.inputs.encoder, self.inputs.scale
        if encoder is None or isinstance(encoder, ExactEvents):
            return samples.float()
        if scale is not None:
            samples = ((samples.flatten(1) - scale[0]) / (scale[1] - scale[0])).clamp(0, 1)
        intensity = samples.flatten(1).float()
        if isinstance(encoder, Rate):
            return encoder.counts(intensity.to(self.dtype)).float()
        return dense(encoder.encode(intensity, self._generator))
