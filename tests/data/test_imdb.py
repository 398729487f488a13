import os
from pathlib import Path

import numpy as np
import pytest
from official_files import write_reviews

from torchs4.data.characters import (
    END_OF_TEXT,
    FIRST_CHARACTER,
    UNKNOWN,
    count_characters,
    frequent_characters,
)
from torchs4.data.imdb import IMDB, _read_reviews
from torchs4.data.location import DatasetMissingError


def contents(split):
    """Each example's numbers without padding, and its label, in the order of the split."""
    batch = split.batch(np.arange(len(split)))
    return [
        (row[:length].tolist(), int(label))
        for row, label, length in zip(batch.x, batch.y, batch.lengths, strict=True)
    ]


def test_characters_are_numbered_and_texts_end_with_a_mark(tmp_path):
    write_reviews(tmp_path)
    data = IMDB(min_count=2, validation_fraction=0.3).load(tmp_path)
    a, b, e_acute = FIRST_CHARACTER, FIRST_CHARACTER + 1, FIRST_CHARACTER + 2
    assert data.input.size == FIRST_CHARACTER + 3
    assert contents(data.test) == [
        ([UNKNOWN] * 4 + [END_OF_TEXT], 0),
        ([END_OF_TEXT], 0),
        ([a, b, e_acute, END_OF_TEXT], 1),
    ]
    texts = sorted(contents(data.train) + contents(data.validation))
    assert texts == sorted(
        [
            ([a, b, END_OF_TEXT], 0),
            ([b, e_acute, END_OF_TEXT], 0),
            ([UNKNOWN, END_OF_TEXT], 0),
            ([a, a, b, END_OF_TEXT], 1),
            ([e_acute, a, END_OF_TEXT], 1),
            ([b, END_OF_TEXT], 1),
            ([a, UNKNOWN, END_OF_TEXT], 1),
        ]
    )


def test_validation_is_held_out_of_training_by_the_seed(tmp_path):
    write_reviews(tmp_path)
    data = IMDB(min_count=1, validation_fraction=0.3).load(tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (5, 2, 3)
    assert contents(IMDB(min_count=1, validation_fraction=0.3).load(tmp_path).train) == contents(data.train)
    chosen = {
        str(contents(IMDB(min_count=1, validation_fraction=0.3, seed=seed).load(tmp_path).validation))
        for seed in range(8)
    }
    assert len(chosen) > 1


def test_test_texts_give_no_characters_to_the_vocabulary(tmp_path):
    write_reviews(tmp_path)
    data = IMDB(min_count=1, validation_fraction=0.3).load(tmp_path)
    assert data.input.size == FIRST_CHARACTER + len(set("abéx😀"))
    assert contents(data.test)[0][0][:4] == [UNKNOWN] * 4


def test_long_reviews_are_cut_at_their_end(tmp_path):
    write_reviews(tmp_path)
    data = IMDB(max_length=2, min_count=2, validation_fraction=0.3).load(tmp_path)
    assert data.input.length == 2
    assert contents(data.test)[2] == ([FIRST_CHARACTER, FIRST_CHARACTER + 1], 1)
    assert data.test.batch(np.arange(3)).x.shape == (3, 2)


def test_line_endings_are_characters_like_any_other(tmp_path):
    write_reviews(tmp_path, test={"neg": ["a\r\nb\n"], "pos": ["a"]}, train={"neg": ["a\r\nb"], "pos": ["b"]})
    data = IMDB(min_count=1, validation_fraction=0.5).load(tmp_path)
    newline, carriage_return, a, b = range(FIRST_CHARACTER, FIRST_CHARACTER + 4)
    assert contents(data.test)[0][0] == [a, carriage_return, newline, b, newline, END_OF_TEXT]


def test_large_vocabularies_keep_their_numbers_apart(tmp_path):
    many = "".join(chr(code) for code in range(0x4E00, 0x4E00 + 300))
    write_reviews(tmp_path, {"neg": [many], "pos": ["a"]}, {"neg": [many], "pos": ["a"]})
    data = IMDB(min_count=1, validation_fraction=0.5).load(tmp_path)
    numbers = contents(data.test)[0][0]
    assert numbers == [*range(FIRST_CHARACTER + 1, FIRST_CHARACTER + 301), END_OF_TEXT]


def test_second_load_needs_only_the_prepared_arrays(tmp_path):
    write_reviews(tmp_path)
    options = IMDB(min_count=2, validation_fraction=0.3)
    before = contents(options.load(tmp_path).train)
    (tmp_path / "aclImdb").rename(tmp_path / "elsewhere")
    assert contents(options.load(tmp_path).train) == before
    with pytest.raises(DatasetMissingError):
        IMDB(min_count=3).load(tmp_path)


def test_reading_tells_how_far_it_is(tmp_path):
    write_reviews(tmp_path)
    calls = []
    IMDB(validation_fraction=0.3).load(tmp_path, lambda *report: calls.append(report))
    assert calls == [
        *(("Reading reviews for train", done, 7) for done in range(1, 8)),
        *(("Reading reviews for test", done, 3) for done in range(1, 4)),
    ]


def test_missing_reviews_say_how_to_get_them(tmp_path):
    with pytest.raises(DatasetMissingError, match="s4 data get imdb"):
        IMDB().load(tmp_path)


def test_empty_folder_is_refused(tmp_path):
    write_reviews(tmp_path, test={"neg": [], "pos": ["a"]})
    with pytest.raises(ValueError, match=r"neg holds no reviews.*s4 data get imdb --again"):
        IMDB().load(tmp_path)


def test_damaged_review_is_named(tmp_path):
    write_reviews(tmp_path)
    (tmp_path / "aclImdb/train/pos/1_9.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"1_9\.txt is damaged.*s4 data get imdb --again"):
        IMDB().load(tmp_path)
    assert not any((tmp_path / "prepared").glob("*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length is 0"),
        ({"min_count": 0}, "min_count is 0"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        IMDB(**options)


@pytest.mark.skipif(
    not Path(os.environ.get("TORCHS4_DATA", "/nowhere"), "aclImdb").is_dir(),
    reason="needs aclImdb in the folder that TORCHS4_DATA names",
)
def test_real_reviews_have_the_known_text_and_balance():
    place = Path(os.environ["TORCHS4_DATA"]) / "aclImdb" / "train"
    texts, labels = _read_reviews(place)
    assert np.bincount(labels).tolist() == [12_500, 12_500]
    assert texts[0] == (place / "neg" / "0_3.txt").read_bytes().decode("utf-8")
    assert len(frequent_characters(count_characters(texts), 15)) == 133
