import hashlib
import statistics
from dataclasses import replace

import numpy as np
import pytest
import torch
from official_files import EXPRESSIONS, LRA_FOLDERS, write_expressions

from torchs4.data.listops import VOCABULARY, ListOps
from torchs4.data.location import DatasetMissingError

SMALL = ListOps(train_size=40, validation_size=7, test_size=9)


def value_of(words):
    """The value of an expression by the textbook, its depth, and how many arguments its operators have."""
    stack, argument_counts, depth, deepest = [[]], [], 1, 1
    for word in words:
        if word.startswith("["):
            stack.append([word])
            depth += 1
            deepest = max(deepest, depth)
        elif word == "]":
            operator, *arguments = stack.pop()
            depth -= 1
            argument_counts.append(len(arguments))
            stack[-1].append(
                {
                    "[MIN": lambda numbers: min(numbers),
                    "[MAX": lambda numbers: max(numbers),
                    "[MED": lambda numbers: int(statistics.median(numbers)),
                    "[SM": lambda numbers: sum(numbers) % 10,
                }[operator](arguments)
            )
        else:
            stack[-1].append(int(word))
    ((value,),) = stack
    return value, deepest, argument_counts


def examples(split):
    """Each example as its words and its label."""
    batch = split.batch(np.arange(len(split)))
    return [
        ([VOCABULARY[token] for token in row[:length]], int(label))
        for row, label, length in zip(batch.x, batch.y, batch.lengths, strict=True)
    ]


def test_generated_labels_are_the_values_of_the_expressions(tmp_path):
    data = SMALL.load(tmp_path)
    for split in (data.train, data.validation, data.test):
        for words, label in examples(split):
            value, deepest, argument_counts = value_of(words)
            assert value == label
            assert 500 < len(words) < 2000
            assert deepest <= 10
            assert min(argument_counts) >= 2
            assert max(argument_counts) <= 10


def test_splits_have_the_asked_sizes_and_share_no_expression(tmp_path):
    data = SMALL.load(tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (40, 7, 9)
    words = [
        " ".join(words) for split in (data.train, data.validation, data.test) for words, _ in examples(split)
    ]
    assert len(set(words)) == 56


def test_drawn_symbols_follow_the_rules_of_the_benchmark(tmp_path):
    data = ListOps(train_size=300, validation_size=1, test_size=1).load(tmp_path)
    expressions = examples(data.train)
    counts = {name: sum(words.count(name) for words, _ in expressions) for name in VOCABULARY[1:]}
    operators = [counts[name] for name in ("[MIN", "[MAX", "[MED", "[SM")]
    digits = [counts[str(digit)] for digit in range(10)]
    assert counts["]"] == sum(operators)
    assert max(operators) / min(operators) < 1.05
    assert max(digits) / min(digits) < 1.05
    argument_counts = [count for words, _ in expressions for count in value_of(words)[2]]
    shares = np.bincount(argument_counts, minlength=11)[2:] / len(argument_counts)
    # Uniform when drawn; expressions that grow long enough have slightly more arguments.
    assert np.abs(shares - 1 / 9).max() < 0.02
    # Expressions end in MIN's and MAX's favourite digits more often than in others.
    assert {label for _, label in expressions} == set(range(10))


def test_same_seed_gives_same_expressions_and_another_seed_others(tmp_path):
    first = examples(SMALL.load(tmp_path / "a").train)
    assert examples(SMALL.load(tmp_path / "b").train) == first
    assert examples(replace(SMALL, seed=1).load(tmp_path / "a").train) != first


def test_a_seed_means_the_same_expressions_everywhere(tmp_path):
    words = " ".join(" ".join(words) for words, _ in examples(SMALL.load(tmp_path).train))
    assert hashlib.sha256(words.encode()).hexdigest()[:16] == "da4007acb9906583"


def test_test_and_validation_expressions_do_not_depend_on_train_size(tmp_path):
    data, larger = SMALL.load(tmp_path), replace(SMALL, train_size=50).load(tmp_path)
    assert examples(larger.test) == examples(data.test)
    assert examples(larger.validation) == examples(data.validation)
    assert examples(larger.train)[:40] == examples(data.train)


def test_generation_tells_how_far_it_is(tmp_path):
    reports = []
    config = ListOps(train_size=2000, validation_size=1, test_size=1)
    config.load(tmp_path, lambda *report: reports.append(report))
    assert len(reports) > 1
    assert {(what, total) for what, _, total in reports} == {("Drawing expressions", 2002)}
    assert [done for _, done, _ in reports] == sorted({done for _, done, _ in reports})
    assert reports[-1][1] == 2002


def test_training_begins_with_parts_that_have_values_of_their_own(tmp_path):
    data = replace(SMALL, parts=6, grow_every=11).load(tmp_path)
    whole = SMALL.load(tmp_path)
    assert examples(data.validation) == examples(whole.validation)
    assert examples(data.test) == examples(whole.test)
    *parts, last = data.train.growth.stages
    assert data.train.growth.every == 11
    assert (sum(parts), last) == (6 * 40, 40)
    found = examples(data.train)
    assert found[-40:] == examples(whole.train)
    texts = [" ".join(words) for words, _ in found[-40:]]
    for words, label in found[:-40]:
        assert value_of(words)[0] == label
        assert any(" ".join(words) in text for text in texts)
    # Stage by stage they are longer, and every expression has given some.
    longest = [
        max(len(words) for words, _ in found[end - size : end])
        for size, end in zip(parts, np.cumsum(parts), strict=True)
    ]
    assert longest == sorted(longest)
    assert longest[0] <= 64
    assert longest[-1] > 256


def test_same_seed_gives_the_same_parts(tmp_path):
    config = replace(SMALL, parts=2)
    first = examples(config.load(tmp_path / "a").train)
    assert examples(config.load(tmp_path / "b").train) == first


def test_expressions_without_parts_give_none(tmp_path):
    write_expressions(tmp_path)
    data = ListOps(source="official", parts=3).load(tmp_path)
    assert data.train.growth.stages == (6, 3)
    for words, label in examples(data.train):
        assert value_of(words)[0] == label


def test_padding_is_zero_and_long_expressions_are_cut(tmp_path):
    whole = SMALL.load(tmp_path).train.batch(np.arange(5))
    data = replace(SMALL, max_length=100).load(tmp_path)
    cut = data.train.batch(np.arange(5))
    assert data.input.length == 100
    assert torch.equal(cut.x, whole.x[:, :100])
    assert cut.lengths.tolist() == [100] * 5
    for row, length in zip(whole.x, whole.lengths, strict=True):
        assert (row[:length] > 0).all()
        assert (row[length:] == 0).all()


def test_description_names_tokens_and_classes(tmp_path):
    data = SMALL.load(tmp_path)
    assert data.input.kind == "tokens"
    assert data.input.size == len(VOCABULARY) == 16
    assert data.task.classes == tuple("0123456789")


@pytest.mark.parametrize("release", LRA_FOLDERS)
def test_release_is_read_without_its_parentheses(tmp_path, release):
    place = write_expressions(tmp_path, release=release)
    assert "( ( (" in (place / "basic_train.tsv").read_text()
    data = ListOps(source="official").load(tmp_path)
    for name, split in (("train", data.train), ("val", data.validation), ("test", data.test)):
        assert examples(split) == [(source.split(), target) for source, target in EXPRESSIONS[name]]
        assert all(value_of(words)[0] == label for words, label in examples(split))


def test_missing_release_says_how_to_get_it(tmp_path):
    with pytest.raises(DatasetMissingError, match="s4 data get lra"):
        ListOps(source="official").load(tmp_path)


def test_missing_file_of_the_release_is_named(tmp_path):
    write_expressions(tmp_path, {"train": EXPRESSIONS["train"], "val": EXPRESSIONS["val"]})
    with pytest.raises(DatasetMissingError, match=r"basic_test\.tsv"):
        ListOps(source="official").load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Question\tAnswer\n[MIN 1 2 ]\t1\n", "not a file of ListOps"),
        ("Source\tTarget\n", "no expressions"),
        ("Source\tTarget\n[MIN 1 2 ]\t1\n[AVG 1 2 ]\t1\n", "line 3 holds b'\\[AVG'"),
        ("Source\tTarget\n[MIN 1 2\t1\n", "line 2"),
        ("Source\tTarget\n[MIN 1 2 ]\t1\n[MIN 1 2 ]", "truncated: line 3"),
        ("Source\tTarget\n[MIN 1 2 ]\t\n", "line 2"),
        ("Source\tTarget\n[MIN 1 2 ]\t12\n", "line 2"),
        ("Source\tTarget\n[MIN 1 2 ]\t]\n", "line 2"),
        ("Source\tTarget\n\t1\n", "line 2"),
    ],
)
def test_damaged_release_is_refused_with_its_line(tmp_path, text, message):
    path = write_expressions(tmp_path) / "basic_val.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        ListOps(source="official").load(tmp_path)
    assert str(path) in str(caught.value)
    assert "s4 data get lra --again" in str(caught.value)
    assert not any((tmp_path / "prepared").glob("*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "official2"}, "official2"),
        ({"max_length": 0}, "max_length is 0"),
        ({"train_size": 0}, "train_size is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"parts": -1}, "parts is -1"),
        ({"grow_every": 0}, "grow_every is 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ListOps(**options)


@pytest.mark.parametrize("damaged", ["[SM ]", "[MAX 1 2 3 4 5 6 7 8 9 1 2 ]"])
def test_parts_of_what_is_no_expression_are_refused(tmp_path, damaged):
    write_expressions(tmp_path, {**EXPRESSIONS, "train": [(f"[MIN {damaged} 3 ]", 1)]})
    with pytest.raises(ValueError, match="These are no expressions of ListOps"):
        ListOps(source="official", parts=2).load(tmp_path)
