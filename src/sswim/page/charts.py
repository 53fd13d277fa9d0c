"""The charts, in Vega-Lite by way of Altair. Colours are names that begin with @, which the page's style sheet gives values.

Charts inside of a stepper have no data of their own: the page's script fills the data set `ROWS`, and sets the signals `low`
and `high`, the ends of the x axis, and `top`, the end of a raster's y axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sswim.report import Facts

if TYPE_CHECKING:
    import altair as alt

__all__ = [
    "bars",
    "bars_of_rows",
    "confusion",
    "dots",
    "fan",
    "lines",
    "lines_of_rows",
    "picture_of_rows",
    "raster",
]

ROWS = "rows"
COLORS = ("@first", "@second", "@third", "@fourth", "@fifth", "@sixth", "@seventh", "@eighth")


def _finished(chart: alt.Chart | alt.LayerChart | alt.FacetChart, height: int, text: str) -> Facts:
    """Return a chart as plain data, as wide as its place, in the page's colours."""
    import altair as alt

    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    chart = chart.properties(width="container", height=height, description=text, autosize=fit)
    chart = chart.configure(background="transparent", font="system-ui, sans-serif", padding=2)
    chart = chart.configure_view(stroke=None).configure_legend(labelColor="@ink", titleColor="@muted", labelFontSize=12)
    found = chart.configure_axis(
        labelColor="@muted",
        titleColor="@muted",
        gridColor="@grid",
        domainColor="@rule",
        tickColor="@rule",
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
        tickCount=6,
        labelOverlap=True,
        labelFlush=True,
    ).to_dict()
    return {key: value for key, value in found.items() if key != "$schema"}  # an address, which nothing here needs


def _filled(rows: Sequence[Facts] | None) -> alt.NamedData | alt.InlineData:
    """Return data that is given, or that the page's script gives."""
    import altair as alt

    return alt.NamedData(ROWS) if rows is None else alt.InlineData(values=list(rows))


# Days by name, and hours within a day.
DATES = (
    "utcFormat(datum.value, utchours(datum.value) || utcminutes(datum.value) ? '%H:%M' : "
    "utcdate(datum.value) > 1 ? '%d %b' : '%b %Y')"
)
# Lines with at most this many values have dots.
SHORT = 8
# Room for the labels of a y axis, so that charts below each other have the same x axis.
ROOM = 44


def _x(title: str, *, time: bool = False, spanned: bool = False) -> alt.X:
    """Return an x axis of times or numbers; `spanned` from `low` to `high`."""
    import altair as alt

    ends: Facts = {"domain": [alt.ExprRef("low"), alt.ExprRef("high")]} if spanned else {}
    scale = alt.Scale(type="utc", nice=False, **ends) if time else alt.Scale(zero=False, nice=False, **ends)
    words: Facts = {"labelExpr": DATES} if time else {}
    axis = alt.Axis(title=title or None, grid=False, tickCount=5, **words)
    return alt.X("x", type="temporal" if time else "quantitative", scale=scale, axis=axis)


def _y(title: str, field: str = "y", *, zero: bool = False) -> alt.Y:
    import altair as alt

    axis = alt.Axis(title=title or None, ticks=False, minExtent=ROOM)
    return alt.Y(field, type="quantitative", scale=alt.Scale(zero=zero, nice=True), axis=axis)


def _point(color: str | None, dots: bool) -> alt.OverlayMarkDef | bool:
    """Return the dots of a line, if there are any: a line of one value is nothing else."""
    import altair as alt

    tint: Facts = {} if color is None else {"fill": color, "stroke": color}
    return alt.OverlayMarkDef(size=18, filled=True, aria=False, **tint) if dots else False


def _tints(count: int) -> alt.Scale:
    """Return one colour for each of the numbers 0, ..., count - 1."""
    import altair as alt

    return alt.Scale(domain=list(range(count)), range=[COLORS[n % len(COLORS)] for n in range(count)])


def _ends() -> list[alt.Parameter]:
    import altair as alt

    return [alt.param(name="low", value=0), alt.param(name="high", value=1)]


def fan(text: str, *, time: bool, points: bool, interval: bool) -> Facts:
    """Return a forecast, the window before, and the truth, with the interval and with dots on request.

    Rows: x, past, truth, forecast, low, high, and `start` at the last row that is known.
    """
    import altair as alt

    base = alt.Chart(alt.NamedData(ROWS)).encode(x=_x("" if time else "row", time=time, spanned=True))
    band = base.mark_area(color="@second", opacity=0.2, aria=False).encode(y=_y("", "low"), y2="high")
    past, truth, forecast = (
        base.mark_line(color=color, strokeWidth=width, point=_point(color, dotted), aria=False).encode(y=_y("", name))
        for name, color, width, dotted in (
            ("past", "@muted", 1.2, False),
            ("truth", "@ink", 1.8, points),
            ("forecast", "@second", 2.4, points),
        )
    )
    rule = (
        alt.Chart(alt.NamedData(ROWS))
        .transform_filter("datum.start")
        .mark_rule(color="@rule", aria=False)
        .encode(x=_x("", time=time))
    )
    layers = [rule, *([band] if interval else []), past, truth, forecast]
    return _finished(alt.layer(*layers).add_params(*_ends()), 260, text)


def raster(text: str, *, time: bool, title: str = "") -> Facts:
    """Return spikes as dots, one line per neuron. Rows: x, y, group (0, 1, ...)."""
    import altair as alt

    color = alt.Color("group:N", scale=_tints(len(COLORS)), legend=None)
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(domain=[-1, alt.ExprRef("top")], nice=False),
        axis=alt.Axis(title=None, labels=False, ticks=False, grid=False, minExtent=ROOM),
    )
    mark = alt.Chart(alt.NamedData(ROWS)).mark_point(shape="square", filled=True, size=9, opacity=0.9, aria=False)
    chart = mark.encode(x=_x(title, time=time, spanned=True), y=y, color=color)
    return _finished(chart.add_params(*_ends(), alt.param(name="top", value=1)), 220, text)


def lines(rows: Sequence[Facts], names: Sequence[str], x: str, y: str, text: str, *, zero: bool = False) -> Facts:
    """Return some lines. Rows: x, y, and the number of the line."""
    return _finished(_lines(rows, len(names), _x(x), _y(y, zero=zero), dots=len(rows) <= SHORT * len(names)), 240, text)


def lines_of_rows(count: int, x: str, y: str, text: str, *, threshold: bool = False, origin: bool = False) -> Facts:
    """Return lines that the page's script gives; with a dashed line at y = 1 or at x = 0 on request. Rows: x, y, line."""
    import altair as alt

    layers = []
    if threshold:
        layers.append(
            alt.Chart(alt.InlineData(values=[{"y": 1}]))
            .mark_rule(color="@muted", strokeDash=[4, 4], aria=False)
            .encode(y=_y(y))
        )
    if origin:
        layers.append(alt.Chart(alt.InlineData(values=[{"x": 0}])).mark_rule(color="@rule", aria=False).encode(x=_x(x)))
    return _finished(alt.layer(*layers, _lines(None, count, _x(x), _y(y))), 200, text)


def _lines(rows: Sequence[Facts] | None, count: int, x: alt.X, y: alt.Y, *, dots: bool = False) -> alt.Chart:
    import altair as alt

    color = alt.Color("line:N", scale=_tints(count), legend=None)
    dash = alt.StrokeDash(
        "line:N", scale=alt.Scale(domain=list(range(count)), range=[[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]][:count]), legend=None
    )
    mark = alt.Chart(_filled(rows)).mark_line(strokeWidth=2, aria=False, point=_point(None, dots))
    return mark.encode(x=x, y=y, color=color, strokeDash=dash) if count <= 4 else mark.encode(x=x, y=y, color=color)


def bars(rows: Sequence[Facts], x: str, text: str) -> Facts:
    """Return bars from left to right, one above the other. Rows: name (text), y, and mark, whether it stands out."""
    return _finished(_bars(rows, x, None), 22 * max(len(rows), 2), text)


def bars_of_rows(x: str, text: str, *, count: int, most: float | None = None) -> Facts:
    """Return `count` bars at most, which the page's script gives; the axis may end at `most`.

    Rows: name (text), y, and mark, whether it stands out.
    """
    return _finished(_bars(None, x, most), 20 * max(count, 3), text)


def _bars(rows: Sequence[Facts] | None, x: str, most: float | None) -> alt.Chart:
    import altair as alt

    axis = alt.Axis(
        title=None,
        ticks=False,
        domain=False,
        labelColor="@ink",
        labelLimit=alt.ExprRef("containerSize()[0] * 0.45"),
        labelOverlap=False,
    )
    place = alt.Y("name:N", sort=None, axis=axis, scale=alt.Scale(paddingInner=0.25))
    tint = alt.condition("datum.mark", alt.value("@second"), alt.value("@first"))
    mark = alt.Chart(_filled(rows)).mark_bar(cornerRadiusEnd=2, aria=False)
    return mark.encode(
        x=alt.X("y:Q", axis=alt.Axis(title=x, ticks=False), scale=alt.Scale() if most is None else alt.Scale(domain=[0, most])),
        y=place,
        color=tint,
    )


def dots(rows: Sequence[Facts], x: str, y: str, text: str, *, diagonal: float | None = None, layers: int = 1) -> Facts:
    """Return dots, and the diagonal up to some value. Rows: x, y, layer, note."""
    import altair as alt

    shade = alt.Color("layer:N", scale=_tints(layers), legend=None)
    shape = alt.Shape(
        "layer:N",
        scale=alt.Scale(domain=list(range(layers)), range=["circle", "square", "diamond", "triangle-up"][:layers]),
        legend=None,
    )
    spots = alt.Chart(_filled(rows)).mark_point(filled=True, size=36, opacity=0.7, aria=False, clip=False)
    chart = spots.encode(x=_x(x), y=_y(y), color=shade, tooltip="note:N", **({"shape": shape} if layers <= 4 else {}))
    if diagonal is not None:
        line = alt.Chart(_filled([{"x": 0, "y": 0}, {"x": diagonal, "y": diagonal}]))
        chart = alt.layer(line.mark_line(color="@rule", strokeDash=[4, 4], aria=False).encode(x=_x(x), y=_y(y)), chart)
    return _finished(chart, 260, text)


def confusion(rows: Sequence[Facts], classes: Sequence[str], text: str) -> Facts:
    """Return how many samples of each class were said to be of which. Rows: true, said, count, share."""
    import altair as alt

    names = list(classes)
    axis: Facts = {"ticks": False, "domain": False, "labelColor": "@ink", "labelLimit": 90}
    base = alt.Chart(_filled(rows)).encode(
        x=alt.X(
            "said:N",
            sort=names,
            axis=alt.Axis(title="class that the model says", orient="top", labelAngle=0 if len(names) <= 12 else -90, **axis),
        ),
        y=alt.Y("true:N", sort=names, axis=alt.Axis(title="true class", **axis)),
    )
    # The square root of the share, or few mistakes would look like none.
    depth = alt.Color(
        "share:Q", scale=alt.Scale(type="sqrt", domain=[0, 1], range=["@card", "@first"], interpolate="rgb"), legend=None
    )
    cells = base.mark_rect(aria=False, stroke="@card", strokeWidth=1).encode(color=depth, tooltip="note:N")
    if len(names) > 30:
        return _finished(cells, 560, text)
    words = base.transform_filter("datum.count > 0").mark_text(aria=False, fontSize=12 if len(names) <= 15 else 9)
    words = words.encode(text="count:Q", color=alt.condition("datum.share > 0.3", alt.value("@on_first"), alt.value("@ink")))
    return _finished(cells + words, max(180, 30 * len(names) + 40 if len(names) <= 15 else 20 * len(names)), text)


def picture_of_rows(text: str, *, shape: tuple[int, int], signed: bool = False, square: bool = True, x: str = "") -> Facts:
    """Return an image of `shape` (rows, columns), with square cells or as wide as its place. The page's script fills it.

    Rows: x, y, v, from 0 to 1, or from -1 to 1 if `signed`.
    """
    import altair as alt

    ends, tints = ([-1, 0, 1], ["@second", "@paper", "@first"]) if signed else ([0, 1], ["@paper", "@ink"])
    place: Facts = {"ticks": False, "labels": False, "domain": False, "grid": False}
    tint = alt.Color("v:Q", scale=alt.Scale(domain=ends, range=tints, interpolate="rgb"), legend=None)
    mark = alt.Chart(alt.NamedData(ROWS)).mark_rect(aria=False)
    chart = mark.encode(
        x=alt.X("x:O", axis=alt.Axis(title=x or None, **place)), y=alt.Y("y:O", axis=alt.Axis(title=None, **place)), color=tint
    )
    if not square:
        return _finished(chart, 160, text)
    cell = max(3, 216 // max(shape))
    return _finished(chart, cell * shape[0], text) | {"width": cell * shape[1], "autosize": "pad"}
