import os
from pathlib import Path

import numpy as np
import pytest
import torch
from official_files import WIKITEXT, write_wikitext

from torchs4.data.characters import UNKNOWN
from torchs4.data.location import DatasetMissingError
from torchs4.data.wikitext import WikiText


def characters(**options):
    return WikiText(level="characters", **options)


def asked_for(split):
    batch = split.batch(np.arange(len(split)))
    return (batch.y if batch.asked is None else batch.y[batch.asked]).flatten().tolist()


def test_official_parts_are_read_as_they_stand(tmp_path):
    write_wikitext(tmp_path)
    data = characters(length=16, min_count=1).load(tmp_path)
    assert set(data.task.names[3:]) == set(WIKITEXT["train"])
    assert data.task.unit == "character"
    for part, split in (("valid", data.validation), ("test", data.test)):
        known = [letter if letter in WIKITEXT["train"] else "<unknown>" for letter in WIKITEXT[part]]
        assert [data.task.names[token] for token in asked_for(split)] == known[1:]
    passages = len(data.train) * 16
    assert (
        "".join(data.task.names[token] for token in asked_for(data.train))
        == (WIKITEXT["train"][1 : passages + 1])
    )


def test_rare_characters_share_a_number(tmp_path):
    write_wikitext(tmp_path)
    data = characters(length=16, min_count=2).load(tmp_path)
    assert "L" not in data.task.names
    assert UNKNOWN in asked_for(data.train)


def test_lengths_share_what_is_prepared(tmp_path):
    write_wikitext(tmp_path)
    characters(length=16).load(tmp_path)
    (tmp_path / "wikitext-2").rename(tmp_path / "elsewhere")
    assert characters(length=8).load(tmp_path).input.length == 8
    with pytest.raises(DatasetMissingError):
        characters(min_count=7).load(tmp_path)


def test_missing_files_say_how_to_get_them(tmp_path):
    with pytest.raises(DatasetMissingError, match="s4 data get wikitext-2"):
        characters().load(tmp_path)


def test_damaged_file_is_named(tmp_path):
    (write_wikitext(tmp_path) / "wiki.valid.tokens").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"wiki\.valid\.tokens is not UTF-8.*s4 data get wikitext-2 --again"):
        characters().load(tmp_path)


@pytest.mark.parametrize("option", [{"length": 0}, {"min_count": 0}])
def test_impossible_options_are_refused(option):
    with pytest.raises(ValueError, match=f"{next(iter(option))} is 0"):
        characters(**option)


@pytest.mark.parametrize("option", [{"release": "wikitext-3"}, {"level": "letters"}])
def test_unknown_choices_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option.values()))):
        WikiText(**option)


@pytest.mark.parametrize("release", ["wikitext-2", "wikitext-103"])
def test_words_are_what_stands_between_spaces_and_ends_of_lines(tmp_path, release):
    write_wikitext(tmp_path, release=release)
    data = WikiText(release, length=3).load(tmp_path)
    names = data.task.names
    lines = WIKITEXT["train"].split("\n")[:-1]
    words = [word for line in lines for word in [*line.split(), "<eos>"]]
    assert set(names) == set(words)
    assert data.task.unit == "word"
    assert data.task.metrics[0].name == "perplexity"
    # By frequency; those that are equally frequent as they first come.
    counts = [words.count(name) for name in names]
    assert counts == sorted(counts, reverse=True)
    assert names[0] == "<eos>"
    passages = 3 * len(data.train)
    assert [names[token] for token in asked_for(data.train)] == words[1 : passages + 1]
    asked = [names[token] for token in asked_for(data.validation)]
    assert " ".join(asked) == "= <unk> = <eos> <eos> A <unk> has ten legs <unk> . <eos>"


def test_rare_words_are_unknown(tmp_path):
    write_wikitext(tmp_path)
    names = WikiText(length=3, min_count=2).load(tmp_path).task.names
    assert set(names) == {"<eos>", "=", ".", "<unk>"}


def test_words_lie_on_disk(tmp_path):
    write_wikitext(tmp_path)
    data = WikiText(length=3).load(tmp_path)
    tokens = data.train._tokens
    assert isinstance(tokens, np.memmap)
    assert tokens.dtype == np.int32


@pytest.mark.parametrize("level", ["words", "characters"])
def test_an_empty_file_is_named(tmp_path, level):
    (write_wikitext(tmp_path) / "wiki.train.tokens").write_bytes(b"")
    with pytest.raises(ValueError, match=r"wiki\.train\.tokens is empty.*s4 data get wikitext-2 --again"):
        WikiText(level=level).load(tmp_path)


def test_a_damaged_line_is_named(tmp_path):
    (write_wikitext(tmp_path) / "wiki.valid.tokens").write_bytes(b"good\ncaf\xe9\n")
    with pytest.raises(ValueError, match=r"wiki\.valid\.tokens is not UTF-8.*line 2.*--again"):
        WikiText().load(tmp_path)


def test_a_text_in_order_asks_for_every_token_once(tmp_path):
    write_wikitext(tmp_path)
    data = WikiText(length=4).load(tmp_path)
    ordered = data.validation.in_order()
    batches = [ordered.batch(np.array([row])) for row in range(len(ordered))]
    assert [batch.x.shape[1] for batch in batches] == [4, 4, 4, 1]
    read = [token for batch in batches for token in batch.x[0].tolist()]
    asked = [token for batch in batches for token in batch.y[0].tolist()]
    assert read[1:] == asked[:-1]
    assert asked == asked_for(data.validation)


def test_a_text_that_is_trained_on_in_order_is_cut_elsewhere_in_every_epoch(tmp_path):
    write_wikitext(tmp_path)
    split = WikiText(length=4).load(tmp_path).train
    beginnings = set()
    for seed in range(8):
        ordered = split.in_order(torch.Generator().manual_seed(seed))
        assert len(ordered) == len(split)
        batch = ordered.batch(np.arange(len(ordered)))
        assert batch.x.shape == (len(split), 4)
        assert batch.x[1:, 0].tolist() == batch.y[:-1, -1].tolist()
        beginnings.add(tuple(batch.x[0].tolist()))
    assert len(beginnings) > 3


@pytest.mark.skipif(
    not Path(os.environ.get("TORCHS4_DATA", "/nowhere"), "wikitext-2").is_dir(),
    reason="needs wikitext-2 in the folder that TORCHS4_DATA names",
)
def test_real_text_has_the_known_characters(tmp_path):
    (tmp_path / "wikitext-2").symlink_to(Path(os.environ["TORCHS4_DATA"], "wikitext-2").resolve())
    data = characters().load(tmp_path)
    assert data.input.size == 194
    counts = {}
    for name, split in (("train", data.train), ("valid", data.validation), ("test", data.test)):
        batches = (split.batch(rows) for rows in np.array_split(np.arange(len(split)), 50))
        counts[name] = sum(data.task.count(batch) for batch in batches)
    # All characters but the first of each file; of the training text, what fills passages.
    assert counts == {"train": 10_780_436 // 256 * 256, "valid": 1_120_191, "test": 1_255_017}
    beginning = "".join(data.task.names[token] for token in data.test.batch(np.array([0])).x[0, :30])
    assert beginning == " \n = Robert <unk> = \n \n Robert"


@pytest.mark.skipif(
    not Path(os.environ.get("TORCHS4_DATA", "/nowhere"), "wikitext-2").is_dir(),
    reason="needs wikitext-2 in the folder that TORCHS4_DATA names",
)
def test_real_text_has_the_published_number_of_words(tmp_path):
    (tmp_path / "wikitext-2").symlink_to(Path(os.environ["TORCHS4_DATA"], "wikitext-2").resolve())
    data = WikiText(length=64).load(tmp_path)
    assert data.input.size == len(set(data.task.names)) == 33_278
    assert data.task.names[:4] == ("the", ",", ".", "of")
    # All words but the first of each file, which nothing asks for.
    counts = {"valid": len(asked_for(data.validation)), "test": len(asked_for(data.test))}
    assert counts == {"valid": 217_645, "test": 245_568}
    assert len(data.train._tokens) == 2_088_628
