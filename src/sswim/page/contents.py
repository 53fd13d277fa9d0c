"""From a fitted model and data to a page: what is shown, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping

from sswim.classes import ClassModel
from sswim.data.series import Breaks
from sswim.forecasts import ForecastModel
from sswim.page.blocks import Section, Tiles, Words
from sswim.page.document import Page, need_report_extra
from sswim.page.limits import Limits
from sswim.page.samples import class_sections
from sswim.page.series import series_sections
from sswim.page.words import about_classifier, about_forecaster, fit_section, settings_section

__all__ = ["Limits", "make_page"]


def make_page(
    model: object,
    params: Mapping[str, object],
    X: object,
    y: object = None,
    *,
    train: object = None,
    breaks: Breaks = None,
    limits: Limits | None = None,
) -> Page:
    """Return the report on a fitted model, as it does on data that it has not seen.

    Parameters
    ----------
    model : ForecastModel or ClassModel
    params : mapping
        The estimator's settings, which are listed.
    X, y : data as `evaluate` or `score` takes it
        `y` is for classifiers, and may be omitted.
    train : series, or a pair (X, y), optional
        What the model was fitted to: the pair that made each neuron is shown then.
    breaks : int or sequence of int, optional
        As in `Forecaster.fit`.
    limits : Limits, optional
        How much is shown.
    """
    need_report_extra()
    most = Limits() if limits is None else limits
    if isinstance(model, ForecastModel):
        if y is not None:
            raise ValueError("y is for classifiers: a Forecaster is tested on the rows that follow each window. Omit y.")
        found = series_sections(model, X, breaks, train, params, most)  # type: ignore[arg-type]
        title, words = f"Forecaster, {model.window} rows to {model.horizon}", about_forecaster(model)
    else:
        if not isinstance(model, ClassModel):
            raise TypeError(f"model must be the model_ of a fitted estimator, got {type(model).__name__}.")
        if breaks is not None:
            raise ValueError("breaks is for forecasters: samples of a Classifier have none. Omit breaks.")
        found = class_sections(model, X, y, train, params, most)
        title, words = f"Classifier, {len(model.classes)} classes", about_classifier(model)
    first = Section("model", "The model", [Words(words), Tiles(found.tiles), *([Words(found.notes)] if found.notes else [])])
    sections = [first, *found.sections, fit_section(model), settings_section(params, found.data)]
    return Page(title, words[0], sections)
