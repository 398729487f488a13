import os
from pathlib import Path

import numpy as np
import pytest
from official_files import WIKITEXT, write_wikitext

from torchs4.data.characters import UNKNOWN
from torchs4.data.location import DatasetMissingError
from torchs4.data.wikitext import WikiText2


def asked_for(split):
    batch = split.batch(np.arange(len(split)))
    return (batch.y if batch.asked is None else batch.y[batch.asked]).flatten().tolist()


def test_official_parts_are_read_as_they_stand(tmp_path):
    write_wikitext(tmp_path)
    data = WikiText2(length=16, min_count=1).load(tmp_path)
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
    data = WikiText2(length=16, min_count=2).load(tmp_path)
    assert "L" not in data.task.names
    assert UNKNOWN in asked_for(data.train)


def test_lengths_share_what_is_prepared(tmp_path):
    write_wikitext(tmp_path)
    WikiText2(length=16).load(tmp_path)
    (tmp_path / "wikitext-2").rename(tmp_path / "elsewhere")
    assert WikiText2(length=8).load(tmp_path).input.length == 8
    with pytest.raises(DatasetMissingError):
        WikiText2(min_count=7).load(tmp_path)


def test_missing_files_say_how_to_get_them(tmp_path):
    with pytest.raises(DatasetMissingError, match="s4 data get wikitext-2"):
        WikiText2().load(tmp_path)


def test_damaged_file_is_named(tmp_path):
    (write_wikitext(tmp_path) / "wiki.valid.tokens").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"wiki\.valid\.tokens is not UTF-8.*s4 data get wikitext-2 --again"):
        WikiText2().load(tmp_path)


@pytest.mark.parametrize("option", [{"length": 0}, {"min_count": 0}])
def test_impossible_options_are_refused(option):
    with pytest.raises(ValueError, match=f"{next(iter(option))} is 0"):
        WikiText2(**option)


@pytest.mark.skipif(
    not Path(os.environ.get("TORCHS4_DATA", "/nowhere"), "wikitext-2").is_dir(),
    reason="needs wikitext-2 in the folder that TORCHS4_DATA names",
)
def test_real_text_has_the_known_characters(tmp_path):
    (tmp_path / "wikitext-2").symlink_to(Path(os.environ["TORCHS4_DATA"], "wikitext-2").resolve())
    data = WikiText2().load(tmp_path)
    assert data.input.size == 194
    counts = {}
    for name, split in (("train", data.train), ("valid", data.validation), ("test", data.test)):
        batches = (split.batch(rows) for rows in np.array_split(np.arange(len(split)), 50))
        counts[name] = sum(data.task.count(batch) for batch in batches)
    # All characters but the first of each file; of the training text, what fills passages.
    assert counts == {"train": 10_780_436 // 256 * 256, "valid": 1_120_191, "test": 1_255_017}
    beginning = "".join(data.task.names[token] for token in data.test.batch(np.array([0])).x[0, :30])
    assert beginning == " \n = Robert <unk> = \n \n Robert"
