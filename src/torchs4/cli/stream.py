"""`s4 stream RUN`: predictions as samples come, from a pipe, a file or a microphone."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from torchs4.cli.consoles import errors
from torchs4.cli.models import best_model, named_run
from torchs4.inference import Stream
from torchs4.inference.sources import LineReader, microphone_samples, recording_samples
from torchs4.inference.writing import encode
from torchs4.layers.inputs import require_rate
from torchs4.models import SequenceModel, SequenceModelConfig

_RECORDINGS = (".wav", ".flac", ".ogg", ".mp3", ".aiff")


@dataclass(frozen=True)
class StreamArguments:
    """Predictions of a run's best model, as samples come.

    Attributes:
        run: a folder that `s4 train` wrote, or the name of a model in `s4 list`.
        source: a file of samples, one per line as CSV or JSON, or a recording; by default standard input.
        every: samples between two predictions; by default 1, for sounds a tenth of a second.
        rate: step size of the samples relative to training: 2 when only every second one comes. By default 1,
            for a recording what its samples per second make it.
        output: "json", an object per line, or "plain", columns with tabs between them.
        top: how many of the likeliest classes or tokens to show.
        allow_nan: pass NaN and infinity on to the model instead of leaving such samples out.
        text: the source is text for a model of characters, which predicts what follows each line.
        microphone: listen instead of reading, where there is one.
    """

    run: tyro.conf.Positional[Path]
    source: tyro.conf.Positional[Path | None] = None
    every: int | None = None
    rate: float | None = None
    output: Literal["json", "plain"] = "json"
    top: int = 10
    allow_nan: bool = False
    text: bool = False
    microphone: bool = False


def stream(arguments: list[str]) -> int:
    """Predict as samples come."""
    chosen = tyro.cli(StreamArguments, prog="s4 stream", args=arguments)
    for name in ("every", "top"):
        value = getattr(chosen, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} is {value}; it must be at least 1.")
    folder = named_run(chosen.run)
    model = best_model(folder)
    kind = folder.metric().name
    reader = LineReader(model.config, _complain, allow_nan=chosen.allow_nan)
    rate, chunks = _text(chosen, model) if chosen.text else _chunks(chosen, model.config, reader)
    running = Stream(model, rate=rate, allow_nan=chosen.allow_nan)
    for samples in chunks:
        running.push(samples)
        record = {"position": running.positions, **_answer(running, kind, chosen.top)}
        # Not through rich: lines must stay whole, and whoever reads the pipe wants them now.
        print(json.dumps(record) if chosen.output == "json" else _plain(record), flush=True)
    if reader.refused:
        _complain(f"{reader.refused} lines were no samples and were left out; {running.positions} were read.")
    elif not running.positions:
        _complain("There was nothing to read. Give a file, or lines of samples on standard input.")
    return 0 if running.positions else 1


def _chunks(
    chosen: StreamArguments, config: SequenceModelConfig, reader: LineReader
) -> tuple[float, Iterator[Any]]:
    if chosen.microphone:
        if chosen.source is not None:
            raise ValueError("Give a file or --microphone, not both.")
        if config.sample_rate is None or config.vocabulary_size is not None:
            raise ValueError(
                "This model was not trained on sounds: it does not know their samples per second."
            )
        rate = 1.0 if chosen.rate is None else chosen.rate
        require_rate(rate)
        heard = microphone_samples(config.sample_rate / rate, config.input_features, chosen.every)
        return rate, heard
    if chosen.source is not None and chosen.source.suffix.lower() in _RECORDINGS:
        per_second, channels, sounds = recording_samples(chosen.source, chosen.every)
        if config.vocabulary_size is not None or channels != config.input_features:
            raise ValueError(
                f"{chosen.source} has {channels} channels; the model reads "
                f"{'tokens' if config.vocabulary_size else config.input_features}."
            )
        known = 1.0 if config.sample_rate is None else config.sample_rate / per_second
        return known if chosen.rate is None else chosen.rate, sounds
    return 1.0 if chosen.rate is None else chosen.rate, reader.read(_lines(chosen.source), chosen.every or 1)


def _text(chosen: StreamArguments, model: SequenceModel) -> tuple[float, Iterator[Any]]:
    if chosen.microphone or chosen.every is not None or chosen.rate is not None:
        raise ValueError("--text goes with a source and with --output and --top only.")
    # Refuses a model of another kind before the first line comes.
    encode(model, "")
    return 1.0, (encode(model, line) for line in _lines(chosen.source))


def _lines(source: Path | None) -> Iterator[str]:
    if source is None or str(source) == "-":
        # By lines: iterating over a pipe's buffer would wait for it to fill.
        yield from iter(sys.stdin.readline, "")
        return
    if not source.exists():
        raise ValueError(f"There is no file {source}.")
    with source.open(encoding="utf-8-sig", errors="replace") as file:
        yield from file


def _answer(running: Stream, kind: str, top: int) -> dict[str, Any]:
    config = running.model.config
    if kind not in ("accuracy", "bits"):
        names = config.names or tuple(map(str, range(config.output_size)))
        return {"values": dict(zip(names, running.prediction.tolist(), strict=True))}
    probabilities = running.probabilities()
    likeliest = sorted(probabilities, key=probabilities.__getitem__, reverse=True)[:top]
    shown = {name: round(probabilities[name], 6) for name in likeliest}
    return {"prediction": likeliest[0], "probabilities": shown}


def _plain(record: dict[str, Any]) -> str:
    if "values" in record:
        return "\t".join([str(record["position"]), *(f"{value:.6g}" for value in record["values"].values())])
    best = record["prediction"]
    return f"{record['position']}\t{best!r}\t{record['probabilities'][best]:.4f}"


def _complain(message: str) -> None:
    errors.print(message, markup=False, soft_wrap=True)
