import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchs4.data import text as text_module
from torchs4.data.characters import END_OF_TEXT, FIRST_CHARACTER, UNKNOWN
from torchs4.data.passages import DrawnPassageSplit, PassageSplit
from torchs4.data.text import TextFile


def write(folder, content, name="book.txt"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def asked_for(split):
    """What all examples of a split ask for, in their order."""
    batch = split.batch(np.arange(len(split)))
    return (batch.y if batch.asked is None else batch.y[batch.asked]).flatten().tolist()


def spelt(data, tokens):
    return "".join(data.task.names[token] for token in tokens)


def test_every_position_asks_for_the_character_after_it(tmp_path):
    data = TextFile(write(tmp_path, "abcabdé" * 40), length=10, min_count=1).load(tmp_path)
    assert data.task.names == ("<padding>", "<unknown>", "<end of text>", "a", "b", "c", "d", "é")
    assert data.task.unit == "character"
    assert (data.input.kind, data.input.size, data.input.length) == ("tokens", 8, 10)
    batch = data.train.batch(np.array([1]))
    assert spelt(data, batch.x[0]) == ("abcabdé" * 3)[10:20]
    assert spelt(data, batch.y[0]) == ("abcabdé" * 3)[11:21]


def test_parts_follow_one_another_in_the_text(tmp_path):
    letters = np.random.default_rng(0).choice(list("abcdefgh"), 999)
    config = TextFile(write(tmp_path, "".join(letters)), 30, 1, validation_fraction=0.1, test_fraction=0.2)
    data = config.load(tmp_path)
    # The end of the text is a position like any other; the first one of each part is nobody's next.
    assert spelt(data, asked_for(data.train)) == "".join(letters[1 : 23 * 30 + 1])
    assert spelt(data, asked_for(data.validation)) == "".join(letters[701:800])
    assert spelt(data, asked_for(data.test)) == "".join(letters[801:]) + "<end of text>"


def test_vocabulary_comes_from_the_training_part_alone(tmp_path):
    path = write(tmp_path, "ab" * 45 + "xx" + "ab" * 3 + "yy")
    data = TextFile(path, 4, 2, validation_fraction=0.06, test_fraction=0.05).load(tmp_path)
    assert data.task.names[FIRST_CHARACTER:] == ("a", "b")
    assert UNKNOWN not in asked_for(data.train)
    assert asked_for(data.validation)[:1] == [UNKNOWN]
    assert asked_for(data.test)[-3:] == [UNKNOWN, UNKNOWN, END_OF_TEXT]


def test_rare_characters_share_a_number(tmp_path):
    path = write(tmp_path, "ab" * 20 + "qz" + "ab" * 40)
    every = TextFile(path, 4, 1).load(tmp_path)
    frequent = TextFile(path, 4, 2).load(tmp_path)
    assert set(every.task.names) - set(frequent.task.names) == {"q", "z"}
    assert asked_for(frequent.train)[39:41] == [UNKNOWN, UNKNOWN]


def test_files_of_a_folder_are_read_by_name_with_a_mark_after_each(tmp_path):
    for name, content in (("b.txt", "b" * 30), ("a.txt", "a" * 30), ("c/d.txt", "d" * 30), ("e.md", "e")):
        write(tmp_path / "texts", content, name)
    config = TextFile(str(tmp_path / "texts"), 10, 1, validation_fraction=0.33, test_fraction=0)
    data = config.load(tmp_path)
    assert data.test is None
    assert spelt(data, asked_for(data.train)) == "a" * 29 + "<end of text>" + "b" * 30
    assert asked_for(data.validation) == [UNKNOWN] * 29 + [END_OF_TEXT]


def test_line_ends_are_characters_and_a_byte_order_mark_is_none(tmp_path):
    data = TextFile(write(tmp_path, b"\xef\xbb\xbf" + b"a\r\n" * 50), 5, 1).load(tmp_path)
    assert data.task.names[FIRST_CHARACTER:] == ("\n", "\r", "a")


def test_long_texts_are_numbered_piece_by_piece(tmp_path, monkeypatch):
    letters = "".join(np.random.default_rng(1).choice(list("abcdé"), 200))
    path = write(tmp_path, letters)
    whole = asked_for(TextFile(path, 7, 1).load(tmp_path / "one").train)
    monkeypatch.setattr(text_module, "_AT_ONCE", 9)
    calls = []
    pieces = TextFile(path, 7, 1).load(tmp_path / "two", lambda *report: calls.append(report))
    assert asked_for(pieces.train) == whole
    assert calls[-1] == ("Numbering characters", 23, 23)


def test_numbers_are_kept_and_made_anew_when_the_text_changes(tmp_path):
    config = TextFile(write(tmp_path, "ab" * 100), 8, 1)
    before = asked_for(config.load(tmp_path).train)
    calls = []
    config.load(tmp_path, lambda *report: calls.append(report))
    assert not calls
    write(tmp_path, "ba" * 100)
    assert asked_for(config.load(tmp_path).train) != before


@given(st.integers(2, 80), st.integers(1, 20))
def test_passages_ask_for_every_token_but_the_first_once(count, length):
    length = min(length, count - 1)
    tokens = np.arange(1, count + 1)
    split = PassageSplit(tokens, length)
    assert asked_for(split) == tokens[1:].tolist()
    for row in range(len(split)):
        batch = split.batch(np.array([row]))
        assert batch.x.shape == batch.y.shape == (1, length)
        assert torch.equal(batch.y, batch.x + 1)


@given(st.integers(2, 80), st.integers(1, 20), st.integers(0, 5))
def test_drawn_passages_come_from_everywhere_in_order(count, length, seed):
    length = min(length, count - 1)
    split = DrawnPassageSplit(np.arange(count), length)
    rows = np.arange(len(split))
    batch = split.batch(rows, torch.Generator().manual_seed(seed))
    assert torch.equal(batch.y, batch.x + 1)
    assert batch.y.max() < count
    assert (batch.x[:, 0].diff() > 0).all()
    assert torch.equal(batch.x, split.batch(rows, torch.Generator().manual_seed(seed)).x)
    plain = split.batch(rows)
    assert plain.x[:, 0].tolist() == [row * length for row in rows]


def test_drawn_passages_begin_everywhere_alike():
    split = DrawnPassageSplit(np.arange(24), 7)
    generator = torch.Generator().manual_seed(0)
    begins = torch.stack([split.batch(np.arange(3), generator).x[:, 0] for _ in range(3000)])
    # The 17 possible beginnings fall to three passages as 5, 6 and 6.
    for passage, (first, end) in enumerate(((0, 5), (5, 11), (11, 17))):
        counts = torch.bincount(begins[:, passage], minlength=17)
        assert counts[:first].sum() == counts[end:].sum() == 0
        assert counts[first:end].min() > 3000 / (end - first) * 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length is 0"),
        ({"length": 2.5}, "length is 2.5; it must be a whole number"),
        ({"min_count": 0}, "min_count is 0"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"test_fraction": 0.99}, "test_fraction is 0.99"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TextFile(**options)


@pytest.mark.parametrize("path", ["", "absent.txt"])
def test_missing_text_is_told(tmp_path, path):
    with pytest.raises(FileNotFoundError, match=f"path is '{path}', where there is nothing; expected"):
        TextFile(path).load(tmp_path)


def test_folder_without_texts_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no \.txt files"):
        TextFile(str(tmp_path)).load(tmp_path)


def test_empty_texts_are_named_and_leave_nothing_behind(tmp_path):
    path = write(tmp_path, "")
    with pytest.raises(ValueError, match=r"book\.txt is empty: there is nothing to learn from"):
        TextFile(path).load(tmp_path)
    (tmp_path / "second.txt").touch()
    with pytest.raises(ValueError, match=r"Each of 2 files, .*book\.txt the first of them, is empty"):
        TextFile(str(tmp_path)).load(tmp_path)
    assert not (tmp_path / "prepared").exists()


def test_other_encodings_are_refused_with_file_and_place(tmp_path):
    path = write(tmp_path, b"caf\xe9 noir")
    with pytest.raises(ValueError, match=r"book\.txt is not UTF-8 text: .* at byte 3\. Save it as UTF-8"):
        TextFile(path).load(tmp_path)
    assert not (tmp_path / "prepared").exists()


def test_too_short_a_text_is_refused(tmp_path):
    path = write(tmp_path, "ab" * 100)
    with pytest.raises(ValueError, match=r"book\.txt: There are 10 characters to validate with; .* 11"):
        TextFile(path, length=10).load(tmp_path)
    with pytest.raises(ValueError, match=r"There are 181 characters to train on; .* at least 257"):
        TextFile(path).load(tmp_path)
