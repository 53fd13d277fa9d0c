"""The command line: `sswim --help`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sswim._version import __version__

app = typer.Typer(
    help="Spiking neural networks trained without gradients.", no_args_is_help=True, pretty_exceptions_enable=False
)
console = Console()
errors = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Data = Annotated[Path, typer.Argument(help="Series as CSV, Parquet or npz, one row per time step.")]
Model = Annotated[Path, typer.Argument(help="A model that `sswim fit` wrote.")]
Breaks = Annotated[int | None, typer.Option(help="Every how many rows a new stretch begins (say, steps per day).")]
Missing = Annotated[str, typer.Option(help="What to do about missing values: error or interpolate.")]


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Say what is wrong with the user's input in one line, without a traceback, and warn of the same thing once."""
    told: set[str] = set()

    def say(text: str, style: str) -> None:
        if text not in told:
            errors.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
        told.add(text)

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: say(f"Warning: {message}", "yellow")
        try:
            yield
        except (ValueError, TypeError, ArithmeticError, OSError) as error:
            say(f"Error: {error}", "red")
            raise typer.Exit(2) from None


def _print_json(answer: Any) -> None:
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
    hidden: Annotated[int, typer.Option(help="Number of hidden neurons; the paper's model has three times as many.")] = 100,
    hours: Annotated[int | None, typer.Option(help="Use the first so many hours of the series only.")] = None,
    as_json: Json = False,
) -> None:
    """Forecast a real wind farm a day ahead, beside persistence, a ridge on lags and the paper's model, and draw it."""
    with _plain_errors():
        from sswim.demo import run_demo

        result = run_demo(out, verbose=not as_json, hidden=hidden, hours=hours)
        summary = result.pop("summary")
        if as_json:
            return _print_json({**result, "picture": str(out), "summary": summary.to_dict()})
        console.print(summary)
        table = Table("model", "RSE", "MAE", "RMSE", title=f"\n{result['windows']:,} test windows, 24 hours ahead")
        for name, score in result["scores"].items():
            table.add_row(name, f"{score['rse']:.3f}", f"{score['mae']:.1f}", f"{score['rmse']:.1f}")
        console.print(table)
        console.print(f"Fitted in {result['seconds']:.1f} s. Picture: {out}")


@app.command()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="Where the model goes.")],
    window: Annotated[int, typer.Option(help="Rows that the model looks at.")] = 168,
    horizon: Annotated[int, typer.Option(help="Rows that it forecasts.")] = 24,
    hidden: Annotated[
        str | None, typer.Option(help="Neurons per hidden layer, such as 100 or 500,250; 750 with --paper, else 100.")
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's model instead of the default one.")] = False,
    skip: Annotated[bool | None, typer.Option(help="Whether the window's rows reach the output too, past the spikes.")] = None,
    scaling: Annotated[str, typer.Option(help="adaptive, window, standard, channel or none.")] = "auto",
    covariate: Annotated[
        list[str] | None, typer.Option(help="A column that is seen but not forecast; may be repeated.")
    ] = None,
    train: Annotated[str, typer.Option(help="sample, gradient (from scratch) or sample+gradient.")] = "sample",
    epochs: Annotated[int | None, typer.Option(help="At most so many, where gradients train.")] = None,
    tune: Annotated[str | None, typer.Option(help="Time to try other options in first, such as 30s.")] = None,
    kernel: Annotated[str, typer.Option(help="Kernel of the first hidden layer.")] = "morlet",
    weights: Annotated[str, typer.Option(help="Weight construction: dot, dist or random.")] = "dot",
    exact: Annotated[bool, typer.Option("--exact", help="Do not thin out the sums over all windows (with --paper).")] = False,
    stride: Annotated[int, typer.Option(help="Use every so many windows (with --paper).")] = 1,
    validation: Annotated[float, typer.Option(help="Part of the windows to choose the regularisation on.")] = 0.2,
    missing: Missing = "error",
    breaks: Breaks = None,
    memory: Annotated[str, typer.Option(help="Memory budget for batches.")] = "1GB",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int | None, typer.Option(help="Same seed, same model.")] = None,
    as_json: Json = False,
) -> None:
    """Fit a model to a series and save it."""
    with _plain_errors():
        from sswim.datasets import read_series
        from sswim.estimators import Forecaster

        options: dict[str, Any] = {} if skip is None else {"skip": skip}
        if hidden is not None:
            try:
                options["hidden"] = tuple(int(n) for n in hidden.split(","))
            except ValueError:
                raise ValueError(f"--hidden must be whole numbers separated by commas, got {hidden!r}.") from None
        if not out.parent.is_dir():
            raise FileNotFoundError(f"--out: the folder {out.parent} does not exist.")
        make = Forecaster.paper if paper else Forecaster
        model = make(
            window,
            horizon,
            scaling=scaling,
            covariates=tuple(covariate or ()),
            tune=tune,
            train=train,
            gradient=None if epochs is None else {"epochs": epochs},
            kernel=kernel,
            weights=weights,
            assembly="exact" if exact else "auto",
            stride=stride,
            validation=validation,
            missing=missing,
            memory=memory,
            device=device,
            random_state=seed,
            verbose=not as_json,
            **options,
        ).fit(read_series(data), breaks=breaks)
        model.save(out)
        summary = model.summary()
        if as_json:
            return _print_json({"model": str(out), **summary.to_dict()})
        console.print(summary)
        console.print(f"Saved: {out}")


@app.command()
def forecast(
    model: Model,
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Where the forecast goes: CSV, Parquet or npz.")] = None,
    as_json: Json = False,
) -> None:
    """Forecast the rows that follow on a series."""
    with _plain_errors():
        from sswim.datasets import read_series, write_series
        from sswim.estimators import Forecaster

        result = Forecaster.load(model).predict(read_series(data))
        if out is not None:
            write_series(result, out)
        if as_json:
            rows = [{str(k): float(v) for k, v in row.items()} for _, row in result.iterrows()]
            return _print_json({"index": [str(i) for i in result.index], "forecast": rows})
        if out is None:
            return typer.echo(result.to_string(max_cols=12))  # a console would break long lines
        console.print(f"{len(result)} rows of {result.shape[1]} channels: {out}")


@app.command()
def evaluate(model: Model, data: Data, breaks: Breaks = None, as_json: Json = False) -> None:
    """Test a model on every window of a series."""
    with _plain_errors():
        from sswim.datasets import read_series
        from sswim.estimators import Forecaster

        result = Forecaster.load(model).evaluate(read_series(data), breaks=breaks)
        if as_json:
            return _print_json(result.to_dict())
        console.print(str(result), highlight=False)
        table = Table("steps ahead", "RSE", "MAE", "RMSE")
        steps = result.per_step
        shown = sorted({round(i * (len(steps) - 1) / 7) for i in range(8)})
        for step, row in steps.iloc[shown].iterrows():
            table.add_row(str(step), f"{row['rse']:.4f}", f"{row['mae']:.4g}", f"{row['rmse']:.4g}")
        console.print(table)


@app.command()
def classify(
    data: Annotated[str, typer.Argument(help="digits, mnist, fashion-mnist, fsdd, nmnist or shd.")] = "digits",
    hidden: Annotated[str, typer.Option(help="Neurons per hidden layer, such as 1000 or 500,500.")] = "1000",
    encoder: Annotated[str | None, typer.Option(help="image, rate, poisson or latency.")] = None,
    readout: Annotated[str | None, typer.Option(help="direct, voltage or spikes.")] = None,
    normalize: Annotated[bool | None, typer.Option(help="Whether a spike readout is normalised.")] = None,
    traces: Annotated[str | None, typer.Option(help="Time constants of a direct readout, such as inf,8.")] = None,
    loss: Annotated[str | None, typer.Option(help="Of a direct readout: log_loss or squared_error.")] = None,
    depth: Annotated[str | None, typer.Option(help="How deeper layers are sampled: residual or plain.")] = None,
    fields: Annotated[bool, typer.Option(help="Whether neurons see patches of an image.")] = True,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's classifier.")] = False,
    weights: Annotated[str, typer.Option(help="Weight construction: dot, dist or random.")] = "dot",
    samples: Annotated[int | None, typer.Option(help="Train on the first so many samples only.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the picture goes.")] = None,
    model_file: Annotated[Path | None, typer.Option("--model", help="Where the model goes.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same model.")] = 0,
    as_json: Json = False,
) -> None:
    """Classify scikit-learn's digits, which are always there, or images, sounds and events from files."""
    with _plain_errors():
        from sswim.demo import run_classification

        try:
            widths = tuple(int(n) for n in hidden.split(","))
        except ValueError:
            raise ValueError(f"--hidden must be whole numbers separated by commas, got {hidden!r}.") from None
        options: dict[str, Any] = {"weights": weights, "random_state": seed, "verbose": not as_json}
        if traces is not None:
            try:
                options["traces"] = tuple(float(constant) for constant in traces.split(","))
            except ValueError:
                raise ValueError(f"--traces must be numbers separated by commas, got {traces!r}.") from None
        if not fields:
            options["fields"] = None
        chosen = {"encoder": encoder, "readout": readout, "normalize": normalize, "depth": depth, "loss": loss}
        options |= {name: value for name, value in chosen.items() if value is not None}
        result = run_classification(data, out, model_file, hidden=widths, samples=samples, paper=paper, **options)
        summary = result.pop("summary")
        if as_json:
            return _print_json({**result, "summary": summary.to_dict()})
        console.print(summary)
        console.print(
            f"{data}: {result['accuracy']:.2%} of {result['test_samples']:,} test samples, fitted on {result['samples']:,} in "
            f"{result['seconds']:.1f} s." + (f" Picture: {out}" if out else "")
        )


@app.command()
def experiment(
    name: Annotated[
        str,
        typer.Argument(help="forecasting, timing, classification, ablation, entropy (the paper's), beyond or ideas (ours)."),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of the runs, the table and the picture.")] = None,
    data: Annotated[list[str] | None, typer.Option(help="Data set, or a file with a series; may be repeated.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 3, fewer with --quick.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version that takes a minute at most.")] = False,
    resume: Annotated[bool, typer.Option("--resume/--again", help="Keep the runs that are there, or do them again.")] = True,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="Option of the experiment, such as horizons=6,24; may be repeated.")
    ] = None,
    render_only: Annotated[
        bool, typer.Option("--render-only", help="Run nothing; make table and picture of all runs that are there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run an experiment of the paper, or of ours. One that was stopped goes on where it was; what is there is not run again."""
    with _plain_errors():
        from sswim.experiments import render, run
        from sswim.experiments.catalogue import find
        from sswim.experiments.runner import load_runs

        find(name)
        folder = Path("experiments") / (name + ("-quick" if quick else "")) if out is None else out
        if render_only:
            runs = load_runs(name, folder)
        else:
            told = dict(_option(text) for text in options or ())
            runs = run(
                name, folder, data=data or (), seeds=seeds, quick=quick, resume=resume, options=told, verbose=not as_json
            )
        text = render(name, folder, runs)
        if as_json:
            return _print_json(json.loads(runs.to_json(orient="records")))
        typer.echo(text)
        console.print(f"{len(runs)} runs, table and picture in {folder}")


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="fit, assembly, simulation, training, growth or electricity.")],
    out: Annotated[Path | None, typer.Option(help="Where the figures go, as JSON.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Where the plot of `growth` goes, as png, svg or pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Measure this machine. Speedups are ratios inside one run, and answers are checked before times are reported."""
    with _plain_errors():
        from sswim.bench import CASES, run

        if name not in CASES:
            raise ValueError(f"bench: unknown case {name!r}. Valid names: {', '.join(map(repr, CASES))}.")
        if picture is not None and name != "growth":
            raise ValueError(f"bench: only 'growth' has a picture, {name!r} has none. Leave --picture away.")
        result = run(name, out)
        if picture is not None:
            from sswim.plots import plot_growth

            plot_growth(result).savefig(picture, dpi=150)
        if as_json:
            return _print_json(result)
        table = Table("figure", "value", title=f"sswim bench {name}")
        for key, value in result["result"].items():
            table.add_row(key, _figures(value))
        console.print(table)


def _option(text: str) -> tuple[str, Any]:
    """Return name and value of ``name=value``, or of ``name=value,value``."""
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise ValueError(f"--set takes name=value, or name=value,value, got {text!r}.")
    found = [int(v) if v.strip().lstrip("-").isdigit() else v.strip() for v in values.split(",")]
    return name.strip(), found[0] if len(found) == 1 else found


def _figures(value: Any) -> str:
    """Return a number, or several, as text."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_figures(v)}" for key, v in value.items())
    if isinstance(value, list):
        return " .. ".join(_figures(v) for v in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    app()
