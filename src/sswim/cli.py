"""The command line: `sswim --help`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sswim._version import __version__
from sswim.arguments import (
    Breaks,
    Columns,
    Covariate,
    Data,
    Dates,
    Drop,
    Json,
    Known,
    Missing,
    Model,
    Settings,
    Target,
    Time,
    Updatable,
    aligned,
    covariates_of,
    executor_of,
    figures,
    layers,
    next_steps,
    option,
    plain_errors,
    rows_for,
    setting,
    widths,
)  # fmt: skip
from sswim.commands import export, report

app = typer.Typer(
    help="Spiking neural networks trained without gradients.", no_args_is_help=True, pretty_exceptions_enable=False
)
Facts = dict[str, Any]  # plain JSON
console = Console()


def _print_json(answer: Facts) -> None:
    typer.echo(json.dumps(answer, indent=2))


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Spiking neural networks trained without gradients."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("demo.png"),
    hidden: Annotated[int, typer.Option(help="Sampled neurons; the paper's model has 15 times as many.")] = 20,
    hours: Annotated[int | None, typer.Option(help="Use this many first hours of the series only.")] = None,
    as_json: Json = False,
) -> None:
    """Forecast flights and a wind farm a day ahead, compare with naive forecasts, a ridge and the paper's model; draw it."""
    with plain_errors():
        from sswim.demo import run_demo
        from sswim.writing import PICTURES, check_place

        check_place(out, endings=PICTURES)
        results = run_demo(out, verbose=not as_json, hidden=hidden, hours=hours)
        if as_json:
            plain = {name: {**facts, "summary": facts["summary"].to_dict()} for name, facts in results.items()}
            return _print_json({**plain, "picture": str(out)})
        for facts in results.values():
            console.print(facts["summary"])
            console.print(f"\n{facts['title']}: {facts['windows']:,} test windows, 24 hours ahead", highlight=False)
            table = Table("model", "RSE", "MAE", "RMSE")
            for name, score in facts["scores"].items():
                table.add_row(name, f"{score['rse']:.3f}", f"{score['mae']:.1f}", f"{score['rmse']:.1f}")
            console.print(table)
            console.print(f"Fitted in {facts['seconds']:.1f} s. {facts['costs']}.\n", highlight=False)
        console.print(f"Picture: {out}\n", soft_wrap=True)
        console.print(next_steps(out), soft_wrap=True, highlight=False)


@app.command()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="Where the model goes.")],
    window: Annotated[int, typer.Option(help="Rows that the model looks at.")] = 168,
    horizon: Annotated[int, typer.Option(help="Rows that it forecasts.")] = 24,
    hidden: Annotated[
        str | None, typer.Option(help="Neurons per hidden layer, such as 100 or 500,250. Default: 750 with --paper, else 20.")
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's model instead of the default one.")] = False,
    skip: Annotated[
        bool | None, typer.Option(help="Whether the output reads the window's rows instead of spikes. Default: no.")
    ] = None,
    scaling: Annotated[str | None, typer.Option(help="adaptive, window, standard, channel or none.")] = None,
    covariate: Covariate = None,
    known: Known = None,
    target: Target = None,
    columns: Columns = None,
    drop: Drop = None,
    time: Time = None,
    date_format: Dates = None,
    training: Annotated[str | None, typer.Option(help="sample+gradient, or gradient (from scratch).")] = None,
    profile: Annotated[str | None, typer.Option(help="A chip whose limits to keep: nir, xylo, speck or loihi.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs at most, where gradients train.")] = None,
    settings: Settings = None,
    missing: Missing = "error",
    breaks: Breaks = None,
    memory: Annotated[str, typer.Option(help="Memory budget.")] = "2GB",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int | None, typer.Option(help="Same seed, same model.")] = None,
    workers: Annotated[int | None, typer.Option(help="Number of processes that compute the sums.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler, such as tcp://host:8786.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder for partial sums: a stopped fit goes on from them.")] = None,
    updatable: Updatable = False,
    as_json: Json = False,
) -> None:
    """Fit a model to a series and save it. The series may be a folder of Parquet files or a Zarr array larger than memory."""
    with plain_errors():
        from sswim.datasets.files import series_at
        from sswim.forecaster import Forecaster
        from sswim.paper import paper_training
        from sswim.writing import check_place

        check_place(out, data)
        options: Facts = {"missing": missing, "memory": memory, "device": device, "random_state": seed, "verbose": not as_json}
        rows, names = series_at(data, {"time": time, "date_format": date_format, "columns": columns, "drop": drop})
        options |= {"covariates": covariates_of(names, covariate, target), "known": tuple(known or ())}
        options["executor"] = executor_of(workers, cluster)
        model = (Forecaster.paper if paper else Forecaster)(window, horizon, **options)
        trained = paper_training(training) if paper else training
        given = {"hidden": widths(hidden), "readout__skip": skip, "scaling": scaling, "training": trained, "profile": profile}
        model.set_params(**{name: value for name, value in given.items() if value is not None})
        if epochs is not None and training is None:
            raise ValueError("--epochs is for a training by gradients: name one with --training.")
        model.set_params(**({} if epochs is None else {"training__epochs": epochs}))
        model.set_params(**dict(setting(text) for text in settings or ())).fit(rows, breaks=breaks, checkpoint=checkpoint)
        model.save(out, updatable=updatable)
        summary = model.summary()
        if as_json:
            return _print_json({"model": str(out), **summary.to_dict()})
        console.print(summary)
        console.print(f"Saved: {out}", soft_wrap=True)


@app.command()
def update(
    model: Model,
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Where the updated model goes. Default: back to its file.")] = None,
    forget: Annotated[float | None, typer.Option(help="Half-life of what was learnt, in rows. Default: none.")] = None,
    time: Time = None,
    date_format: Dates = None,
    as_json: Json = False,
) -> None:
    """Add rows that follow on those seen so far to a model that was saved with --updatable."""
    with plain_errors():
        from sswim.forecaster import Forecaster
        from sswim.writing import check_place

        place = model if out is None else out
        check_place(place, data)
        fitted = Forecaster.load(model).set_params(verbose=not as_json)
        fitted.partial_fit(rows_for(fitted, data, time, date_format), forget=forget)
        fitted.save(place, updatable=True)
        past = fitted.model_.past
        assert past is not None
        facts = {"model": str(place), "windows": past.seen, "last": past.labels[-1] if past.labels else None}
        if as_json:
            return _print_json(facts)
        until = f", up to {facts['last']}" if facts["last"] else ""
        console.print(f"Saved: {place}, now of {past.seen:,} windows{until}", soft_wrap=True)


@app.command()
def forecast(
    model: Model,
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Where the forecast goes: CSV, Parquet or npz.")] = None,
    future: Annotated[Path | None, typer.Option(help="Rows that follow, with the covariates that are known ahead.")] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Add lower and upper bounds that contain this fraction of all values, such as 0.9.")
    ] = None,
    time: Time = None,
    date_format: Dates = None,
    as_json: Json = False,
) -> None:
    """Forecast the rows that follow a series."""
    with plain_errors():
        import pandas as pd

        from sswim.datasets.files import READERS, read_series, write_series
        from sswim.forecaster import Forecaster
        from sswim.writing import check_place

        if out is not None:
            check_place(out, data, model, *([] if future is None else [future]), endings=list(READERS))
        fitted = Forecaster.load(model)
        rows = rows_for(fitted, data, time, date_format)
        ahead = None if future is None else read_series(future, time=time, date_format=date_format)
        result = pd.DataFrame(fitted.predict(rows, ahead))
        if coverage is not None:
            low, high = map(pd.DataFrame, fitted.predict_interval(rows, coverage, ahead))
            result = result.join(low.add_suffix(" low")).join(high.add_suffix(" high"))
        if out is not None:
            write_series(result, out)
        if as_json:
            shown = [{str(k): float(v) for k, v in row.items()} for _, row in result.iterrows()]
            return _print_json({"index": [str(i) for i in result.index], "forecast": shown})
        if out is None:
            # In a terminal, columns that do not fit come below; elsewhere, a row stays one line.
            wide = console.width if console.is_terminal else None
            return typer.echo(result.to_string(max_cols=12, line_width=wide, float_format="{:.6g}".format))
        console.print(f"Saved: {out} ({len(result)} rows, {result.shape[1]} columns)", soft_wrap=True)


@app.command()
def evaluate(
    model: Model, data: Data, breaks: Breaks = None, time: Time = None, date_format: Dates = None, as_json: Json = False
) -> None:
    """Test a model on every window of a series."""
    with plain_errors():
        from sswim.forecaster import Forecaster

        fitted = Forecaster.load(model)
        rows = rows_for(fitted, data, time, date_format)
        result = fitted.evaluate(rows, breaks=breaks)
        if as_json:
            return _print_json(result.to_dict())
        console.print(str(result), highlight=False, soft_wrap=True)
        table = Table("steps ahead", "RSE", "MAE", "RMSE")
        steps = result.per_step
        shown = sorted({round(i * (len(steps) - 1) / 7) for i in range(8)})
        for step, row in steps.iloc[shown].iterrows():
            table.add_row(str(step), f"{row['rse']:.4f}", f"{row['mae']:.4g}", f"{row['rmse']:.4g}")
        console.print(table)


@app.command()
def classify(
    data: Annotated[str, typer.Argument(help="digits, mnist, fashion-mnist, fsdd, nmnist or shd.")] = "digits",
    hidden: Annotated[
        str,
        typer.Option(help="Neurons per hidden layer, such as 1000 or 500,500, or filters: 400x7. Default: as suits."),
    ] = "auto",
    encoder: Annotated[str | None, typer.Option(help="image, rate, poisson, latency or current.")] = None,
    readout: Annotated[str | None, typer.Option(help="direct, voltage or spikes.")] = None,
    fields: Annotated[bool, typer.Option(help="Whether neurons see patches of an image.")] = True,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's classifier.")] = False,
    settings: Settings = None,
    samples: Annotated[int | None, typer.Option(help="Train on this many samples only.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Where the picture goes.")] = None,
    model_file: Annotated[Path | None, typer.Option("--model", help="Where the model goes.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same model.")] = 0,
    as_json: Json = False,
) -> None:
    """Classify scikit-learn's digits, which need no files, or images, sounds and events from files."""
    with plain_errors():
        from sswim.demo import run_classification
        from sswim.writing import PICTURES, check_place

        for place, argument, endings in ((out, "--out", PICTURES), (model_file, "--model", ())):
            if place is not None:
                check_place(place, name=argument, endings=endings)
        options: Facts = {"random_state": seed, "verbose": not as_json}
        options |= {} if hidden == "auto" else {"hidden": layers(hidden)}
        options |= {name: value for name, value in (("encoder", encoder), ("readout", readout)) if value is not None}
        if not fields:
            options["fields"] = None
        inside = dict(setting(text) for text in settings or ())
        result = run_classification(data, out, model_file, samples=samples, paper=paper, inside=inside, **options)
        summary = result.pop("summary")
        if as_json:
            return _print_json({**result, "summary": summary.to_dict()})
        console.print(summary)
        console.print(
            f"{data}: {result['accuracy']:.2%} of {result['test_samples']:,} test samples are right, fitted on "
            f"{result['samples']:,} in {result['seconds']:.1f} s.",
            highlight=False,
        )
        if out is not None:
            console.print(f"Picture: {out}", soft_wrap=True)


@app.command()
def experiment(
    name: Annotated[
        str,
        typer.Argument(
            help="forecasting, timing, classification, ablation, entropy (the paper's), splits, questions, beyond, ideas, "
            "ltsf, economy."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of the runs, the table and the picture.")] = None,
    data: Annotated[list[str] | None, typer.Option(help="Data set, or a file with a series; may be repeated.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 3, fewer with --quick.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version that takes a minute at most.")] = False,
    resume: Annotated[bool, typer.Option("--resume/--again", help="Keep finished runs, or do them again.")] = True,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="Option of the experiment, such as horizons=6,24; may be repeated.")
    ] = None,
    render_only: Annotated[
        bool, typer.Option("--render-only", help="Run nothing; make the table and the picture from finished runs.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run an experiment, one of the paper's or one of sswim's. An experiment that was stopped continues where it was."""
    with plain_errors():
        from sswim.experiments import render, run
        from sswim.experiments.catalogue import find
        from sswim.experiments.runner import load_runs

        note = find(name).note
        folder = Path("experiments") / (name + ("-quick" if quick else "")) if out is None else out
        if render_only:
            runs = load_runs(name, folder)
        else:
            chosen = dict(option(text) for text in options or ())
            runs = run(
                name, folder, data=data or (), seeds=seeds, quick=quick, resume=resume, options=chosen, verbose=not as_json
            )
        text = render(name, folder, runs)
        if as_json:
            return _print_json(json.loads(runs.to_json(orient="records")))
        typer.echo(aligned(text) + (f"\n{note}" if " * " in text else ""))
        console.print(f"{len(runs)} runs. Table, picture and runs: {folder}", soft_wrap=True)


@app.command()
def bench(
    name: Annotated[
        str, typer.Argument(help="fit, assembly, simulation, training, growth, electricity, company, forecasters.")
    ],
    out: Annotated[Path | None, typer.Option(help="Where the figures go, as JSON.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Where the plot of `growth` goes, as png, svg or pdf.")] = None,
    data: Annotated[str | None, typer.Option(help="forecasters: data set or file. Default: wind-farm, hourly.")] = None,
    window: Annotated[int | None, typer.Option(help="forecasters: rows that models look at. Default: the data set's.")] = None,
    horizon: Annotated[int | None, typer.Option(help="forecasters: rows that they forecast. Default: 24.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="forecasters: training steps of deep networks. Default: 1000.")] = None,
    seeds: Annotated[int | None, typer.Option(help="forecasters: number of runs of each model. Default: 1.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="forecasters: run this model only; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Measure this machine. Speedups are ratios inside one run, and answers are checked before times are reported.

    `forecasters` compares sswim with what people would pick instead: errors, seconds of fit and prediction, and peak memory.
    LightGBM and the networks of neuralforecast take part if they are installed, as by `make peers`.
    """
    with plain_errors():
        from sswim.bench import CASES, run
        from sswim.writing import PICTURES, check_place, whole_file

        if name not in CASES:
            raise ValueError(f"bench: unknown case {name!r}. Valid names: {', '.join(map(repr, CASES))}.")
        if picture is not None and name != "growth":
            raise ValueError(f"bench: only 'growth' has a picture, {name!r} has none. Omit --picture.")
        chosen = {"data": data, "window": window, "horizon": horizon, "max_steps": max_steps, "seeds": seeds, "models": model}
        given = {option: value for option, value in chosen.items() if value is not None}
        if given and name != "forecasters":
            raise ValueError(f"bench: {', '.join(given)} is for 'forecasters', {name!r} has no such option. Omit it.")
        for place, argument, endings in ((out, "--out", ()), (picture, "--picture", PICTURES)):
            if place is not None:
                check_place(place, name=argument, endings=endings)
        result = run(name, out, **given)
        if picture is not None:
            from sswim.plots import plot_growth

            with whole_file(picture) as part:
                plot_growth(result).savefig(part, dpi=150)
        if as_json:
            return _print_json(result)
        rows = result["result"]
        columns = list(next((value for value in rows.values() if isinstance(value, dict)), {"value": None}))
        table = Table("figure", *columns, title=f"sswim bench {name}")
        for key, value in rows.items():
            table.add_row(key, *map(figures, value.values() if isinstance(value, dict) else [value]))
        console.print(table)


app.command()(export)
app.command()(report)

if __name__ == "__main__":
    app()
