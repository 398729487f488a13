import numpy as np
import pytest
from official_files import LRA_FOLDERS, PAIRS, write_pairs

from torchs4.data import retrieval
from torchs4.data.characters import END_OF_TEXT, FIRST_CHARACTER, UNKNOWN
from torchs4.data.location import DatasetMissingError
from torchs4.data.retrieval import Retrieval

QUOTE, B, X, Y = range(FIRST_CHARACTER, FIRST_CHARACTER + 4)


def contents(split):
    """Each example's two documents without padding, and its label."""
    batch = split.batch(np.arange(len(split)))
    return [
        ([row[:length].tolist() for row, length in zip(rows, lengths, strict=True)], int(label))
        for rows, label, lengths in zip(batch.x, batch.y, batch.lengths, strict=True)
    ]


@pytest.mark.parametrize("release", LRA_FOLDERS)
def test_pairs_are_read_as_they_stand_with_their_labels(tmp_path, release):
    write_pairs(tmp_path, release=release)
    data = Retrieval(min_count=2).load(tmp_path)
    assert data.input.documents == 2
    assert data.input.size == FIRST_CHARACTER + 4
    assert len(data.task.classes) == 2
    assert contents(data.train) == [
        ([[B, QUOTE, X, Y, QUOTE, END_OF_TEXT], [B, QUOTE, Y, X, QUOTE, END_OF_TEXT]], 1),
        ([[B, QUOTE, X, QUOTE, END_OF_TEXT], [B, QUOTE, UNKNOWN, QUOTE, END_OF_TEXT]], 0),
        ([[B, QUOTE, QUOTE, END_OF_TEXT], [B, QUOTE, Y, QUOTE, END_OF_TEXT]], 1),
    ]
    assert contents(data.validation) == [
        ([[B, QUOTE, X, Y, UNKNOWN, QUOTE, END_OF_TEXT], [B, QUOTE, X, QUOTE, END_OF_TEXT]], 0)
    ]
    assert [label for _, label in contents(data.test)] == [1, 0]


def test_batches_carry_both_documents_in_one_tensor(tmp_path):
    write_pairs(tmp_path)
    batch = Retrieval(min_count=2).load(tmp_path).test.batch(np.array([1, 0]))
    assert batch.x.shape == (2, 2, 64)
    assert batch.y.tolist() == [0, 1]
    assert batch.lengths.tolist() == [[5, 5], [5, 10]]


def test_long_documents_are_cut_and_count_only_as_cut(tmp_path):
    write_pairs(tmp_path)
    data = Retrieval(max_length=3, min_count=2).load(tmp_path)
    # Within three characters of each document, x and y still occur twice.
    assert data.input.size == FIRST_CHARACTER + 4
    assert contents(data.test)[0] == ([[B, QUOTE, Y], [B, QUOTE, X]], 1)
    shorter = Retrieval(max_length=2, min_count=2).load(tmp_path)
    assert shorter.input.size == FIRST_CHARACTER + 2


def test_escapes_and_quotes_are_characters(tmp_path):
    rows = [("1", 'b"it\'s \\n"', "b'\\xc3\\xa9'")]
    write_pairs(tmp_path, {"train": rows, "eval": rows, "test": rows})
    data = Retrieval(min_count=1).load(tmp_path)
    documents, _ = contents(data.test)[0]
    characters = sorted(set("".join(rows[0][1:])))
    assert [
        "".join(characters[number - FIRST_CHARACTER] for number in document[:-1]) for document in documents
    ] == list(rows[0][1:])


def test_test_and_eval_texts_give_no_characters_to_the_vocabulary(tmp_path):
    write_pairs(tmp_path)
    assert Retrieval(min_count=1).load(tmp_path).input.size == FIRST_CHARACTER + len("b'xyq")


def test_reading_in_pieces_changes_nothing(tmp_path, monkeypatch):
    write_pairs(tmp_path / "a")
    write_pairs(tmp_path / "b")
    whole = contents(Retrieval(min_count=2).load(tmp_path / "a").train)
    monkeypatch.setattr(retrieval, "_PAIRS_AT_ONCE", 2)
    assert contents(Retrieval(min_count=2).load(tmp_path / "b").train) == whole


def test_reading_tells_how_far_it_is(tmp_path, monkeypatch):
    place = write_pairs(tmp_path)
    monkeypatch.setattr(retrieval, "_PAIRS_AT_ONCE", 2)
    reports = []
    Retrieval(min_count=2).load(tmp_path, lambda *report: reports.append(report))
    sizes = {part: (place / f"new_aan_pairs.{part}.tsv").stat().st_size for part in PAIRS}
    assert [what for what, _, _ in reports] == [
        *["Counting characters of new_aan_pairs.train.tsv"] * 2,
        *["Reading new_aan_pairs.train.tsv"] * 2,
        "Reading new_aan_pairs.eval.tsv",
        "Reading new_aan_pairs.test.tsv",
    ]
    assert [total for _, _, total in reports] == [*[sizes["train"]] * 4, sizes["eval"], sizes["test"]]
    assert 0 < reports[0][1] < reports[1][1] == sizes["train"]
    assert all(done == total for _, done, total in reports[3:])


def test_missing_files_say_how_to_get_them(tmp_path):
    with pytest.raises(DatasetMissingError, match="s4 data get lra"):
        Retrieval().load(tmp_path)
    write_pairs(tmp_path, {"train": PAIRS["train"], "eval": PAIRS["eval"]})
    with pytest.raises(DatasetMissingError, match=r"new_aan_pairs\.test\.tsv"):
        Retrieval().load(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"1.0\ta\tb\tb'x'\tb'y'\n0.0\ta\tb\tb'x", "line 2"),
        (b"1.0\ta\tb\tb'x'\tb'y'\textra\n", "line 1"),
        (b"yes\ta\tb\tb'x'\tb'y'\n", "line 1"),
        (b"2\ta\tb\tb'x'\tb'y'\n", "label 2, not 0 or 1"),
        (b"nan\ta\tb\tb'x'\tb'y'\n", "label nan"),
        (b"1\ta\tb\tb'\xff'\tb'y'\n", "line 1"),
        (b"", "is empty"),
    ],
)
def test_damaged_file_is_refused_with_its_line(tmp_path, damage, message):
    path = write_pairs(tmp_path) / "new_aan_pairs.eval.tsv"
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=message) as caught:
        Retrieval().load(tmp_path)
    assert str(path) in str(caught.value)
    assert "s4 data get lra --again" in str(caught.value)
    assert not any((tmp_path / "prepared").glob("*"))


@pytest.mark.parametrize("options", [{"max_length": 0}, {"min_count": 0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="is 0"):
        Retrieval(**options)
