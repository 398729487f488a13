"""`s4 stream`, `s4 generate` and `s4 export`, on runs whose models learned nothing."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import wave
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from cases import build, samples

from torchs4 import recipes
from torchs4.cli import main
from torchs4.data.speech_commands import SC10_WORDS
from torchs4.inference import Stream
from torchs4.tasks import ACCURACY, MSE, Metric
from torchs4.training.checkpoints import replace_folder
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

BITS = Metric("bits", "bits per character")
NAMES = ("<padding>", "<unknown>", "<end of text>", *"abcdefg ")
CLASSES = ("one", "two", "three", "four", "five")


def run_of(folder: Path, metric: Metric, case: str, **options: Any) -> Any:
    """A run's folder with such a model, and the model."""
    model = build(case, dtype=torch.float32, **options)
    run = RunFolder(folder)
    run.start("test", recipes.find("digits").config("cpu"), [metric])
    replace_folder(run.best, model.save_pretrained)
    return model


def test_predictions_come_for_every_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = run_of(tmp_path / "run", ACCURACY, "s4", names=CLASSES)
    x = samples(model, 1, 6)[0]
    lines = [",".join(map(repr, row)) for row in x.tolist()]
    lines.insert(3, "1,oops")
    lines.insert(0, "left,right")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
    assert main(["stream", str(tmp_path / "run"), "--top", "2"]) == 0
    shown = capsys.readouterr()
    records = [json.loads(line) for line in shown.out.splitlines()]
    assert [record["position"] for record in records] == [1, 2, 3, 4, 5, 6]
    stream = Stream(model)
    for record, sample in zip(records, x, strict=True):
        stream.push(sample)
        expected = stream.probabilities()
        assert record["prediction"] == max(expected, key=expected.__getitem__)
        assert len(record["probabilities"]) == 2
        for name, value in record["probabilities"].items():
            assert value == pytest.approx(expected[name], abs=1e-5)
    assert "line 1 is taken for names of columns: left, right" in shown.err
    assert "line 5: 'oops' is no number" in shown.err
    assert "1 lines were no samples" in shown.err


def test_a_file_of_values_comes_out_plain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = run_of(tmp_path / "run", MSE, "scaled", names=CLASSES)
    x = samples(model, 1, 7)[0]
    np.savetxt(tmp_path / "x.csv", x.numpy(), delimiter=",", header="a,b", comments="")
    options = ["--output", "plain", "--every", "3", "--rate", "2"]
    assert main(["stream", str(tmp_path / "run"), str(tmp_path / "x.csv"), *options]) == 0
    rows = [list(map(float, line.split("\t"))) for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == [3, 6, 7]
    assert rows[-1][1:] == pytest.approx(Stream(model, rate=2.0).push(x)[-1].tolist(), rel=1e-4, abs=1e-4)


def test_a_recording_of_another_rate_is_heard_at_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    soundfile = pytest.importorskip("soundfile")
    model = run_of(tmp_path / "run", ACCURACY, "stem", sample_rate=16000.0, names=CLASSES)
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, (1900, 2)).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", sound, 8000, subtype="FLOAT")
    assert main(["stream", str(tmp_path / "run"), str(tmp_path / "a.wav")]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["position"] for record in records] == [800, 1600, 1900]
    stream = Stream(model, rate=2.0)
    stream.push(sound)
    assert records[-1]["probabilities"] == pytest.approx(stream.probabilities(), abs=1e-4)
    soundfile.write(tmp_path / "mono.wav", sound[:, 0], 8000)
    assert main(["stream", str(tmp_path / "run"), str(tmp_path / "mono.wav")]) == 1
    assert "has 1 channels; the model reads 2" in capsys.readouterr().err


def test_a_model_that_comes_with_torchs4_listens_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    time = np.arange(8000) / 16_000
    with wave.open(str(tmp_path / "hum.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes((8000 * np.sin(2 * np.pi * 200 * time)).astype("<i2").tobytes())
    assert main(["stream", "sc10-raw", str(tmp_path / "hum.wav"), "--top", "10"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert records[-1]["position"] == 8000
    assert set(records[-1]["probabilities"]) == set(SC10_WORDS)


def test_tokens_get_the_next_tokens_distribution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path / "run", BITS, "tokens", names=NAMES)
    (tmp_path / "tokens").write_text("4\n5\n")
    assert main(["stream", str(tmp_path / "run"), str(tmp_path / "tokens"), "--top", "3"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(record["probabilities"]) <= set(NAMES)
    assert len(record["probabilities"]) == 3


def test_text_is_read_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = run_of(tmp_path / "run", BITS, "tokens", names=NAMES)
    (tmp_path / "text").write_text("abba\n\ndad")
    assert main(["stream", str(tmp_path / "run"), str(tmp_path / "text"), "--text", "--top", "11"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["position"] for record in records] == [5, 6, 9]
    stream = Stream(model)
    stream.push([3, 4, 4, 3, 1, 1, 6, 3, 6])
    assert records[-1]["probabilities"] == pytest.approx(stream.probabilities(), abs=1e-5)


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    run_of(tmp_path / "run", ACCURACY, "s4", names=CLASSES)
    for arguments, words in (
        (["stream", run, "--microphone"], "not trained on sounds"),
        (["stream", run, "x.csv", "--microphone"], "not both"),
        (["stream", run, str(tmp_path / "nothing.csv")], "There is no file"),
        (["stream", run, str(tmp_path / "nothing.wav")], "There is no file"),
        (["stream", run, os.devnull], "There was nothing to read"),
        (["stream", run, "--every", "0"], "--every is 0"),
        (["stream", run, "--rate", "0"], "rate is 0"),
        (["stream", run, "--text"], "no characters"),
        (["stream", run, "--text", "--rate", "2"], "--text goes with"),
        (["stream", str(tmp_path)], "is not a run"),
        (["generate", run, "--prompt", "a"], "reads values"),
        (["generate", run, "--temperature", "-1"], "temperature is -1"),
        (["export", run, "--output", str(tmp_path / "out"), "--chunk", "0"], "chunk"),
    ):
        assert main(arguments) == 1, arguments
        assert words in capsys.readouterr().err


def test_a_seed_writes_the_same_text_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path / "run", BITS, "tokens", names=NAMES)
    arguments = [
        "generate",
        str(tmp_path / "run"),
        "--prompt",
        "a bad [red]",
        "--length",
        "30",
        "--seed",
        "1",
    ]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("a bad [red]")
    assert set(text.removeprefix("a bad [red]")) <= set("abcdefg \n")
    assert main(arguments) == 0
    assert capsys.readouterr().out == text


def test_unknown_words_of_a_prompt_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("the", "<unk>", "cat", ".", "<eos>", "sat", "'s", "mat", "=", ",", "on")
    run_of(tmp_path / "run", BITS, "tokens", names=names)
    run = str(tmp_path / "run")
    assert main(["generate", run, "--prompt", "the dog and [i]", "--length", "3", "--seed", "1"]) == 0
    told = capsys.readouterr()
    assert "does not know these words, which it reads as unknown: dog and [i]" in told.err
    assert told.out.startswith("the dog and [i]")
    assert main(["generate", run, "--prompt", "the cat", "--length", "3"]) == 0
    assert not capsys.readouterr().err


def test_an_export_lies_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    run_of(tmp_path / "run", ACCURACY, "s4")
    assert main(["export", str(tmp_path / "run"), "--to", "onnx", "--output", str(tmp_path / "out")]) == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["chunk.onnx", "model.json", "step.onnx"]
    assert all(name in capsys.readouterr().out for name in names[:1])


@pytest.mark.slow
def test_a_pipe_gets_each_prediction_at_once(tmp_path: Path) -> None:
    run_of(tmp_path / "run", ACCURACY, "s4", names=CLASSES)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "torchs4.cli", "stream", str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for position in (1, 2, 3):
        process.stdin.write("0.5,0.25\n")
        process.stdin.flush()
        # Comes before the next sample is sent, or never.
        assert json.loads(process.stdout.readline())["position"] == position
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
