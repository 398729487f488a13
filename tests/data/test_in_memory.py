"""Own arrays, lists and torch datasets as a dataset."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchs4.data import fingerprint, from_arrays, from_dataset
from torchs4.data.own.moments import Moments
from torchs4.tasks import Classification, PositionRegression, Regression

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data import Batch, SequenceData, Split


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def labels(count: int, classes: int = 2) -> np.ndarray:
    return np.arange(count) % classes


def unequal(count: int = 12, channels: int = 2) -> list[np.ndarray]:
    return [numbers(5 + 17 * row, channels, seed=row) for row in range(count)]


def everything(split: Split | None) -> Batch:
    assert split is not None
    return split.batch(np.arange(len(split)))


def all_batches(data: SequenceData) -> list[Batch]:
    return [everything(split) for split in (data.train, data.validation, data.test) if split is not None]


class TestInputs:
    def test_two_axes_are_examples_and_positions(self) -> None:
        x = numbers(20, 7)
        data = from_arrays(x, labels(20))
        assert (data.input.kind, data.input.size, data.input.length) == ("values", 1, 7)
        rows = np.concatenate([batch.x.numpy() for batch in all_batches(data)])
        assert rows.shape == (20, 7, 1)
        assert rows.dtype == np.float32
        assert {row.tobytes() for row in rows} == {row.tobytes() for row in x}
        assert data.test is None
        assert data.train.lengths is None

    def test_batches_hold_the_units_that_came(self) -> None:
        x = 1000 + 50 * numbers(30, 9, 2)
        data = from_arrays(x, x.mean((1, 2)))
        batch = everything(data.train)
        assert 990 < batch.x.mean() < 1010
        assert 990 < batch.y.mean() < 1010

    @pytest.mark.parametrize("dtype", [np.int16, np.uint8, np.float64, np.float16, np.bool_, ">f4"])
    def test_any_real_numbers_become_float32(self, dtype: Any) -> None:
        x = (3 * numbers(10, 5)).astype(dtype)
        batch = everything(from_arrays(x, labels(10)).validation)
        assert batch.x.dtype == torch.float32

    def test_tensors_and_frames_are_read_like_arrays(self) -> None:
        class Frame:
            def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
                return x.numpy()

        x, y = torch.from_numpy(numbers(10, 5, 3)), torch.arange(10) % 2
        expected = everything(from_arrays(x.numpy(), y.numpy()).train)
        for same in (x, x.clone().requires_grad_(), Frame(), list(x), [row.tolist() for row in x]):
            torch.testing.assert_close(everything(from_arrays(same, y).train).x, expected.x)
        assert everything(from_arrays(x.bfloat16(), y).train).x.dtype == torch.float32

    def test_sequences_of_unequal_length_are_padded_side_by_side(self) -> None:
        x = unequal()
        data = from_arrays(x, labels(12), validation=(x[:3], labels(3)))
        assert data.input.length == len(x[-1]) == 192
        assert data.train.lengths is not None
        assert data.train.lengths.tolist() == [len(item) for item in x]
        batch = data.train.batch(np.array([3, 0, 3]))
        assert batch.x.shape == (3, 64, 2)
        assert batch.lengths is not None
        assert batch.lengths.tolist() == [56, 5, 56]
        for row, item in enumerate((x[3], x[0], x[3])):
            np.testing.assert_array_equal(batch.x[row, : len(item)], item)
            assert (batch.x[row, len(item) :] == 0).all()

    def test_lengths_say_where_padded_rows_end(self) -> None:
        x, lengths = numbers(10, 100), np.arange(10) + 3
        x[:, 90:] = np.nan
        data = from_arrays(x, labels(10), lengths=lengths, validation=(x[:, :50], labels(10)))
        batch = everything(data.train)
        assert data.input.length == 50
        assert batch.x.shape == (10, 12, 1)
        assert batch.lengths is not None
        assert batch.lengths.tolist() == lengths.tolist()
        assert data.input.scaling is not None
        real = np.concatenate([row[:length] for row, length in zip(x, lengths, strict=True)])
        assert data.input.scaling.shift[0] == pytest.approx(real.mean(), rel=1e-5)
        is_padding = np.arange(12) >= lengths[:, None]
        assert (batch.x.numpy()[is_padding] == 0).all()

    def test_a_large_batch_takes_milliseconds(self) -> None:
        array = numbers(64, 16_000)
        rows = np.arange(32)
        for x in (array, [*array[1:], array[0, :-1]]):
            split = from_arrays(x, labels(64)).train
            times = []
            for _ in range(5):
                start = time.perf_counter()
                split.batch(rows)
                times.append(time.perf_counter() - start)
            assert min(times) < 0.05


class TestArraysOnDisk:
    def test_rows_are_picked_from_the_file(self, tmp_path: Path) -> None:
        x = numbers(30, 8, 2)
        np.save(tmp_path / "x.npy", x)
        expected = from_arrays(x, labels(30))
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        for given_x in (mapped, tmp_path / "x.npy", str(tmp_path / "x.npy")):
            data = from_arrays(given_x, labels(30))
            assert data.input == expected.input
            assert torch.equal(everything(data.train).x, everything(expected.train).x)
            everything(data.train).x.zero_()
        np.testing.assert_array_equal(mapped, x)

    def test_they_are_not_read_into_memory(self, tmp_path: Path) -> None:
        np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (4000, 20_000)).flush()
        code = f"""
import resource, numpy as np
from torchs4.data import from_arrays
def anonymous():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1])
before = anonymous()
data = from_arrays({str(tmp_path / "x.npy")!r}, np.arange(4000) % 2)
data.train.batch(np.arange(32))
print(anonymous() - before)
"""
        if not sys.platform.startswith("linux"):
            pytest.skip("looks into /proc")
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        # The file has 320 MB; blocks of 2 million numbers in double precision need about 50.
        assert int(out) < 150_000

    def test_other_files_are_refused_with_advice(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"x\.csv is not an \.npy file.*SequenceFiles"):
            from_arrays(tmp_path / "x.csv", [1, 2])


class TestScaling:
    def test_it_is_that_of_the_training_examples_alone(self) -> None:
        x, y = numbers(50, 11, 3) * [1, 10, 0.1] + [0, -5, 3], numbers(50)
        data = from_arrays(x, y, validation=0.2, test=0.2, seed=4)
        batch = everything(data.train)
        for values, scaling in ((batch.x, data.input.scaling), (batch.y, data.task.output.scaling)):
            assert scaling is not None
            flat = values.reshape(-1, values.shape[-1]).double()
            torch.testing.assert_close(
                flat.mean(0), torch.tensor(scaling.shift).double(), atol=1e-6, rtol=1e-6
            )
            deviation = flat.std(0, correction=0)
            torch.testing.assert_close(deviation, torch.tensor(scaling.scale).double(), atol=1e-6, rtol=1e-6)

    def test_without_normalization_there_is_none(self) -> None:
        data = from_arrays(numbers(10, 4), numbers(10), normalize=False)
        assert data.input.scaling is None
        assert data.task.output.scaling is None

    def test_a_constant_channel_is_only_shifted(self) -> None:
        x = numbers(20, 9, 2)
        x[..., 1] = 0.1
        scaling = from_arrays(x, labels(20)).input.scaling
        assert scaling is not None
        assert scaling.scale[1] == 1
        assert scaling.shift[1] == pytest.approx(0.1)

    @settings(deadline=None, derandomize=True, database=None)
    @given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 99), st.floats(-1e6, 1e6))
    def test_moments_of_pieces_are_those_of_the_whole(
        self, sizes: list[int], seed: int, shift: float
    ) -> None:
        values = np.random.default_rng(seed).normal(shift, 1, (sum(sizes), 2))
        pieces = [Moments.of(part) for part in np.split(values, np.cumsum(sizes)[:-1])]
        found = pieces[0]
        for piece in pieces[1:]:
            found = found.with_others(piece)
        whole = Moments.of(values)
        np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.squares, whole.squares, rtol=1e-6, atol=1e-12)
        assert (found.low == whole.low).all()
        assert (found.high == whole.high).all()

    def test_large_arrays_are_measured_in_pieces(self) -> None:
        x = numbers(400, 6000, 1) + 7
        data = from_arrays(x, labels(400))
        assert data.input.scaling is not None
        expected = everything(data.train).x.double()
        assert data.input.scaling.shift[0] == pytest.approx(float(expected.mean()), abs=1e-9)
        assert data.input.scaling.scale[0] == pytest.approx(float(expected.std(correction=0)), abs=1e-9)


class TestLabels:
    @pytest.mark.parametrize(
        ("y", "classes", "codes"),
        [
            ([10, 9, 2], ("2", "9", "10"), [2, 1, 0]),
            (["b", "a", "c"], ("a", "b", "c"), [1, 0, 2]),
            ([True, False, True], ("False", "True"), [1, 0, 1]),
            (np.array(["b", "a", "c"], object), ("a", "b", "c"), [1, 0, 2]),
            (np.array([b"b", b"a", b"c"]), ("a", "b", "c"), [1, 0, 2]),
            (torch.tensor([5, 4, 5]), ("4", "5"), [1, 0, 1]),
            ([torch.tensor(5), torch.tensor(4), torch.tensor(5)], ("4", "5"), [1, 0, 1]),
            (np.array([[3], [1], [3]]), ("1", "3"), [1, 0, 1]),
            ([("b", 1), ("a", 2), "z"], ("('a', 2)", "('b', 1)", "z"), [1, 0, 2]),
        ],
    )
    def test_labels_are_classes_in_order(self, y: Any, classes: tuple[str, ...], codes: list[int]) -> None:
        x = numbers(3, 4)
        data = from_arrays(x, y, validation=(x, y))
        assert data.task == Classification(classes)
        for split in (data.train, data.validation):
            assert everything(split).y.dtype == torch.int64
            assert everything(split).y.tolist() == codes

    def test_whole_floats_are_classes_when_asked_for(self) -> None:
        y = np.array([2.0, 0.0] * 5)
        assert from_arrays(numbers(10, 4), y, task="classification").task == Classification(("0", "2"))
        assert isinstance(from_arrays(numbers(10, 4), y).task, Regression)
        with pytest.raises(ValueError, match=r'Example 1 has the label 0\.5.*task="regression"'):
            from_arrays(numbers(10, 4), y + [0, 0.5] * 5, task="classification")

    def test_class_names_count_whole_numbers(self) -> None:
        x = numbers(4, 4)
        data = from_arrays(x, [1, 0, 1, 0], classes=("up", "down", "left"), validation=(x, [2, 2, 1, 0]))
        assert data.task == Classification(("up", "down", "left"))
        assert everything(data.train).y.tolist() == [1, 0, 1, 0]
        assert everything(data.validation).y.tolist() == [2, 2, 1, 0]

    def test_class_names_order_other_labels(self) -> None:
        x, y = numbers(4, 4), ["up", "down", "up", "up"]
        data = from_arrays(x, y, classes=("up", "down"), validation=(x, y))
        assert everything(data.train).y.tolist() == [0, 1, 0, 0]
        numbered = from_arrays(x, [7, 3, 7, 7], classes=(7, 3), validation=(x, [3, 3, 7, 3]))
        assert numbered.task == Classification(("7", "3"))
        assert everything(numbered.validation).y.tolist() == [1, 1, 0, 1]

    def test_numbers_of_other_parts_mean_what_they_mean_in_training(self) -> None:
        x = numbers(4, 4)
        data = from_arrays(x, [1, 2, 3, 1], validation=(x, [1, 2, 1, 1]))
        assert everything(data.validation).y.tolist() == [0, 1, 0, 0]

    @pytest.mark.parametrize("y", [numbers(20), numbers(20, 1), numbers(20).tolist(), list(numbers(20, 1))])
    def test_floats_are_values(self, y: Any) -> None:
        data = from_arrays(numbers(20, 6), y)
        assert isinstance(data.task, Regression)
        assert not isinstance(data.task, PositionRegression)
        assert data.task.columns == ("y",)
        assert everything(data.train).y.shape == (18, 1)
        assert everything(data.train).y.dtype == torch.float32

    def test_several_values_are_columns(self) -> None:
        y = numbers(20, 3)
        for same in (y, y.tolist(), [tuple(row) for row in y.tolist()]):
            task = from_arrays(numbers(20, 6), same).task
            assert isinstance(task, Regression)
            assert task.columns == ("y0", "y1", "y2")

    def test_whole_numbers_are_values_when_asked_for(self) -> None:
        data = from_arrays(numbers(20, 6), np.arange(20), task="regression")
        assert sorted(v for batch in all_batches(data) for v in batch.y[:, 0].tolist()) == list(range(20))

    @pytest.mark.parametrize("y", [numbers(20, 6), numbers(20, 6, 2), list(numbers(20, 6, 2))])
    def test_as_many_values_as_positions_are_values_of_positions(self, y: Any) -> None:
        x = numbers(20, 6)
        data = from_arrays(x, y, validation=(x, y))
        assert isinstance(data.task, PositionRegression)
        expected = np.asarray(y).reshape(20, 6, -1)
        np.testing.assert_array_equal(everything(data.train).y, expected)
        assert isinstance(from_arrays(x, numbers(20, 6), task="regression").task, Regression)

    def test_values_of_positions_follow_their_sequences(self) -> None:
        x = unequal()
        y = [item.sum(1) for item in x]
        data = from_arrays(x, y, validation=(x, y))
        assert isinstance(data.task, PositionRegression)
        batch = data.train.batch(np.array([4, 1]))
        assert batch.y.shape == (2, 128, 1)
        torch.testing.assert_close(batch.y[..., 0], batch.x.sum(-1))
        scaling = data.task.scaling
        assert scaling is not None
        assert scaling.shift[0] == pytest.approx(np.concatenate(y).mean(), abs=1e-6)

    def test_values_of_padded_positions_do_not_count(self) -> None:
        x, lengths = numbers(8, 10), np.arange(8) + 2
        y = x * 2
        y[:, 9] = np.nan
        data = from_arrays(x, y, lengths=lengths, task="position-regression")
        batch = everything(data.train)
        torch.testing.assert_close(batch.y, 2 * batch.x)

    def test_a_task_works_on_its_batches(self) -> None:
        for y in (labels(20), numbers(20, 2), [item[:, :1] for item in unequal(20)]):
            data = from_arrays(unequal(20), y)
            batch = everything(data.train)
            shape = (*batch.y.shape, 2) if batch.y.ndim == 1 else batch.y.shape
            assert data.task.sums(torch.zeros(shape), batch).isfinite().all()
            assert data.task.count(batch) > 0


class TestTokens:
    def test_tokens_keep_their_numbers_and_0_pads(self) -> None:
        x = np.array([[3, 1, 2, 0, 0], [4, 0, 0, 0, 0], [1, 1, 1, 1, 9], [5, 5, 0, 0, 0]])
        for same in (x, x.astype(np.uint8), x.astype(float), x[..., None]):
            data = from_arrays(same, [0, 1, 0, 1], tokens=True, validation=(same, [0, 1, 0, 1]))
            assert (data.input.kind, data.input.size, data.input.length) == ("tokens", 10, 5)
            assert data.input.scaling is None
            batch = everything(data.train)
            assert batch.x.dtype == torch.int64
            assert batch.x.tolist() == x.tolist()
            assert batch.lengths is not None
            assert batch.lengths.tolist() == [3, 1, 5, 2]

    def test_a_vocabulary_may_be_larger_than_what_occurs(self) -> None:
        x = np.ones((4, 3), int)
        assert from_arrays(x, [0, 1] * 2, tokens=True, vocabulary_size=50).input.size == 50
        with pytest.raises(ValueError, match=r"vocabulary_size is 5, but x holds token 9; .* at least 10"):
            from_arrays(x * 9, [0, 1] * 2, tokens=True, vocabulary_size=5)
        with pytest.raises(ValueError, match="tokens=True"):
            from_arrays(x, [0, 1] * 2, vocabulary_size=5)

    def test_lists_of_tokens_have_their_own_lengths(self) -> None:
        x = [[1, 2], [3], [4, 4, 4], [1]]
        data = from_arrays(x, [0, 1] * 2, tokens=True, validation=(x, [0, 1] * 2))
        assert everything(data.train).x.tolist() == [[1, 2, 0], [3, 0, 0], [4, 4, 4], [1, 0, 0]]

    @pytest.mark.parametrize(
        ("x", "message"),
        [
            ([[1, 0, 2], [1, 1, 1]], "Example 0 has token 0 at position 1; tokens are numbers from 1 on"),
            (np.array([[1, 1], [-1, 1]]), "Example 1 has token -1 at position 0"),
            (np.array([[1, 1], [0, 0]]), "Example 1 holds only token 0"),
            ([[1, 1], [2, 0]], "Example 1 ends with token 0.*cut it off, or add 1"),
            (np.array([[1, 1.5], [1, 1]]), "x holds 1.5; tokens are whole numbers"),
            (np.ones((2, 3, 4), int), r"x has shape \(2, 3, 4\); expected \(examples, positions\)"),
        ],
    )
    def test_what_is_no_token_is_refused(self, x: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            from_arrays(x, ["a", "b"], tokens=True)

    def test_texts_are_read_by_characters_of_the_training_texts(self) -> None:
        data = from_arrays(
            ["abba", "b", "aé"], ["p", "n", "p"], validation=(["ax", "bé"], ["p", "n"]), test=(["z"], ["n"])
        )
        names = data.input.names
        assert names == ("<padding>", "<unknown>", "<end of text>", "a", "b", "é")
        assert (data.input.kind, data.input.size, data.input.length) == ("tokens", 6, 5)
        batch = everything(data.train)
        assert batch.lengths is not None
        shown = ["".join(names[token] for token in row if token > 2) for row in batch.x]
        assert shown == ["abba", "b", "aé"]
        assert batch.lengths.tolist() == [5, 2, 3]
        assert everything(data.validation).x[0, :3].tolist() == [3, 1, 2]
        assert everything(data.test).x[0].tolist() == [1, 2]


class TestBadData:
    def test_a_value_that_is_none_is_found(self) -> None:
        for value in (np.nan, np.inf, -np.inf):
            x = numbers(10, 30, 4)
            x[6, 17, 2] = value
            with pytest.raises(ValueError, match=f"Example 6, position 17, channel 2 is {value}"):
                from_arrays(x, labels(10))
            with pytest.raises(ValueError, match=f"Validation example 6, position 17, channel 2 is {value}"):
                from_arrays(numbers(10, 3, 4), labels(10), validation=(x, labels(10)))
            with pytest.raises(ValueError, match=f"Test example 6, position 17, channel 2 is {value}"):
                from_arrays(numbers(10, 3, 4), labels(10), test=(x, labels(10)))

    def test_it_is_found_in_sequences_of_unequal_length(self) -> None:
        x = unequal()
        x[7][11, 1] = np.nan
        with pytest.raises(ValueError, match="Example 7, position 11, channel 1 is nan"):
            from_arrays(x, labels(12))

    def test_it_is_found_far_into_a_large_array(self) -> None:
        x = np.zeros((500, 10_000), np.float32)
        x[499, 9_999] = np.inf
        with pytest.raises(ValueError, match="Example 499, position 9999, channel 0 is inf"):
            from_arrays(x, labels(500))

    def test_a_value_beyond_single_precision_is_refused(self) -> None:
        x = numbers(10, 3).astype(float)
        x[2, 1] = 1e300
        with pytest.raises(ValueError, match=r"Example 2, .* is 1e\+300, which is beyond"):
            from_arrays(x, labels(10))

    @pytest.mark.parametrize(
        ("x", "y", "options", "message"),
        [
            (numbers(5), labels(5), {}, r"x has shape \(5,\); expected \(examples, positions\)"),
            (numbers(5, 2, 2, 2), labels(5), {}, r"x has shape \(5, 2, 2, 2\); expected"),
            (numbers(5, 0), labels(5), {}, r"x has shape \(5, 0\): there is nothing in it"),
            ([], [], {}, "x holds no examples"),
            (5, [1], {}, "x is a int; expected an array"),
            (numbers(5, 2).astype(complex), labels(5), {}, "x holds complex128; expected real numbers"),
            ([[1.0], [], [2.0]], labels(3), {}, "Example 1 is empty"),
            ([[1.0], ["a"], [2.0]], labels(3), {}, "Example 1 holds something that is not a number: 'a'"),
            ([[1.0], [None], [2.0]], labels(3), {}, "Example 1 holds something that is not a number: None"),
            ([[1.0], [[1], [1, 2]]], labels(2), {}, "Example 1 has positions with different numbers"),
            (["a", "", "b"], labels(3), {}, "Example 1 is an empty text"),
            (["a", 3, "b"], labels(3), {}, "Example 1 is a int among texts"),
            ([numbers(3, 9), numbers(3, 8)], [0, 1], {}, r"If these are \(channels, positions\), transpose"),
            ([numbers(9, 3), numbers(8, 2)], [0, 1], {}, "need the same number of channels, which come last"),
            (numbers(5, 9), labels(4), {}, "x has 5 examples and y has 4"),
            (numbers(5, 9), [0, 1, None, 0, 1], {}, "Example 2 has no label: y is None"),
            (numbers(5, 9), ["a", "b", float("nan"), "a", "b"], {}, "Example 2 has no label: y is nan"),
            (numbers(5, 9), np.array([0, 1, np.nan, 0, 1]), {}, "Example 2, value 'y' is nan"),
            (numbers(5, 9), ["a"] * 5, {}, "All 5 examples have the class 'a'"),
            (numbers(1, 9), ["a"], {}, "x has 1 examples; at least 2 are needed"),
            (numbers(2, 9), ["a", "b"], {"test": 0.1}, "x has 2 examples; at least 3 are needed"),
            (numbers(3, 9), ["a", "b", "c"], {}, "every class keeps at least one to train on"),
            (
                numbers(4, 9),
                [0, 1, 5, 0],
                {"classes": ("a", "b")},
                "Example 2 has the label 5; expected one of",
            ),
            (numbers(4, 9), ["a", "x", "a", "b"], {"classes": "ab"}, "Example 1 has the label 'x'"),
            (numbers(4, 9), [1, 0, 1, 0], {"classes": ("a", "a")}, "Two classes are written 'a'"),
            (numbers(4, 9), numbers(4), {"classes": ("a", "b")}, "classes were given, but the task is 'regr"),
            (numbers(4, 9), np.ones((4, 9), int), {}, 'task="regression" or task="position-regression"'),
            (
                numbers(4, 9),
                ["a", "b"] * 2,
                {"task": "regression"},
                "y of example 0 is 'a'; expected a number",
            ),
            (numbers(4, 9), labels(4), {"task": "guess"}, "task is 'guess'; choose one of 'classification'"),
            (numbers(4, 9), numbers(4, 9), {"task": "classification"}, "needs one label for each"),
            (numbers(4, 9), numbers(4, 9, 2), {"task": "regression"}, "position-regression"),
            (numbers(4, 9), numbers(4, 8), {"task": "position-regression"}, "x have 9 positions"),
            (
                numbers(4, 2, 9),
                numbers(4, 9),
                {"task": "position-regression"},
                r"x of shape \(4, 2, 9\) looks like \(examples, channels, positions\)",
            ),
            (unequal(4), [numbers(5)] * 4, {"task": "position-regression"}, "sequences of x have 5 to 56"),
            (
                unequal(3),
                [numbers(5), numbers(22), numbers(3)],
                {},
                r"y of example 2 has shape \(3,\), but its x has 39 positions",
            ),
            (["ab", "cd"], [[0.5, 0.1], [0.1, 0.2]], {"task": "position-regression"}, "x holds texts|x have"),
            (numbers(4, 9), labels(4), {"validation": 0}, "validation fraction is 0"),
            (numbers(4, 9), labels(4), {"validation": (1, 2, 3)}, "expected a fraction or a pair"),
            (numbers(4, 9), labels(4), {"sample_rate": 0}, "sample_rate is 0"),
            (
                numbers(4, 9),
                labels(4),
                {"lengths": [1, 2, 0, 4]},
                "Example 2 has length 0; .* between 1 and 9",
            ),
            (numbers(4, 9), labels(4), {"lengths": [1, 2]}, "lengths has shape"),
            (unequal(4), labels(4), {"lengths": [1, 2, 3, 4]}, "lengths belong to an array"),
            (np.ma.masked_greater(numbers(4, 9), 0), labels(4), {}, "Some values are masked"),
            (numbers(4, 9), numbers(4, 0), {}, r"y has shape \(4, 0\); regression needs"),
            (
                numbers(4, 9),
                ["a", "b"] * 2,
                {"validation": (numbers(2, 9), ["a", "z"])},
                "Validation example 1 has the label 'z'; expected one of 'a', 'b'",
            ),
            (
                numbers(4, 9),
                labels(4),
                {"validation": (numbers(2, 9, 2), [0, 1])},
                "Parts of the data have 1 and 2 channels",
            ),
            (
                numbers(4, 9),
                labels(4),
                {"validation": (["ab", "cd"], [0, 1])},
                "Some examples are texts and others are numbers",
            ),
            (
                numbers(4, 9),
                numbers(4, 2),
                {"validation": (numbers(4, 9), numbers(4, 3))},
                "y has 3 values, that of the training examples has 2",
            ),
        ],
    )
    def test_it_is_named(self, x: Any, y: Any, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            from_arrays(x, y, **options)

    def test_a_gap_among_values_of_positions_is_found(self) -> None:
        y = numbers(5, 9)
        y[3, 4] = np.nan
        with pytest.raises(ValueError, match="Y of example 3, position 4, channel 'y' is nan"):
            from_arrays(numbers(5, 9), y)


class _Items(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Counts how often it is read."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y, self.reads = x, y, 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.reads += 1
        return torch.as_tensor(self.x[index]), self.y[index]


class TestTorchDatasets:
    @pytest.mark.parametrize(
        "x", [numbers(12, 6), numbers(12, 6, 2), unequal()], ids=["plain", "wide", "list"]
    )
    @pytest.mark.parametrize("kind", ["labels", "values", "positions"])
    def test_they_give_what_their_content_gives(self, x: Any, kind: str) -> None:
        y: Any = {
            "labels": labels(12),
            "values": numbers(12, 2),
            "positions": [2 * item.reshape(len(item), -1)[:, :1] for item in x],
        }[kind]
        data, expected = from_dataset(_Items(x, y), test=0.2), from_arrays(x, list(y), test=0.2)
        assert data.task.output.names == expected.task.output.names
        assert type(data.task) is type(expected.task)
        assert data.input.scaling is not None
        assert expected.input.scaling is not None
        assert data.input.scaling.shift == pytest.approx(expected.input.scaling.shift)
        assert data.input.scaling.scale == pytest.approx(expected.input.scaling.scale)
        for one, other in zip(all_batches(data), all_batches(expected), strict=True):
            torch.testing.assert_close(one.x, other.x)
            torch.testing.assert_close(one.y, other.y)
            assert (one.lengths is None) == (other.lengths is None)

    def test_items_are_read_when_they_are_wanted(self) -> None:
        items = _Items(numbers(20, 5), labels(20))
        data = from_dataset(items)
        assert items.reads == 40
        data.train.batch(np.arange(3))
        assert items.reads == 43

    def test_other_datasets_validate_and_test(self) -> None:
        parts = [_Items(numbers(size, 5), ["a", "b"] * (size // 2)) for size in (10, 4, 6)]
        data = from_dataset(parts[0], validation=parts[1], test=parts[2])
        assert data.test is not None
        assert [len(data.train), len(data.validation), len(data.test)] == [10, 4, 6]

    def test_lists_of_pairs_are_datasets_too_and_tokens_come_as_they_are(self) -> None:
        items = [([1, 2, 3], "a"), ([4], "b")] * 3
        data = from_dataset(items, tokens=True)
        assert (data.input.kind, data.input.size) == ("tokens", 5)
        assert data.train.batch(np.array([0])).x.dtype == torch.int64

    def test_reading_tells_how_far_it_is(self) -> None:
        calls: list[tuple[str, int, int]] = []
        from_dataset(_Items(numbers(20, 5), labels(20)), progress=lambda *call: calls.append(call))
        assert {what for what, _, _ in calls} == {"Reading items", "Checking values"}
        assert calls[-1][1:] == (20, 20)

    def test_a_changing_shape_is_refused(self) -> None:
        items = _Items(numbers(20, 5), labels(20))
        data = from_dataset(items)
        items.x = numbers(20, 4)
        with pytest.raises(ValueError, match=r"Item \d+ now has shape \(4, 1\)"):
            data.train.batch(np.array([0]))

    @pytest.mark.parametrize(
        ("items", "message"),
        [
            (iter([]), "has no length; expected a map-style one"),
            ([], "holds no items"),
            ([numbers(3)] * 3, "Item 0 is a ndarray; expected a pair"),
            ([(numbers(3), 0), (numbers(3, 2), 1)], "Item 1 has 2 channels, the first one has 1"),
            ([(numbers(3), 0), (numbers(0), 1)], "Item 1 is empty"),
            ([(numbers(3), 0), (numbers(3) * np.nan, 1)] * 2, "Item 1, position 0, channel 0 is nan"),
            ([(numbers(3), 0), (numbers(3), None)], "Item 1 has no label"),
        ],
    )
    def test_bad_items_are_named(self, items: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            from_dataset(items)


class TestFingerprint:
    def test_the_same_content_has_the_same(self) -> None:
        x = numbers(30, 8)
        expected = fingerprint(from_arrays(x, labels(30), test=0.2))
        assert len(expected) == 32
        assert fingerprint(from_arrays(x.copy(), labels(30).tolist(), test=0.2)) == expected

    def test_it_stays_the_same_on_every_machine(self) -> None:
        x = np.arange(40, dtype=np.float32).reshape(8, 5)
        assert fingerprint(from_arrays(x, [0, 1] * 4)) == "7f63d6467930c0db6efb5a4820e059bf"

    def test_every_difference_shows(self) -> None:
        x, y = numbers(30, 8), labels(30)
        changed = x.copy()
        changed[3, 3] += 1
        other_y = y.copy()
        other_y[[4, 5]] = other_y[[5, 4]]
        found = [
            fingerprint(data)
            for data in (
                from_arrays(x, y),
                from_arrays(changed, y),
                from_arrays(x, other_y),
                from_arrays(x, y, seed=1),
                from_arrays(x, y, test=0.1),
                from_arrays(x, y, classes=("a", "b")),
                from_arrays(x, y.astype(float)),
                from_arrays(x[:, :7], y),
                from_arrays(x[:-1], y[:-1]),
                from_arrays(x, y, lengths=np.full(30, 7)),
                from_arrays(x, y, sample_rate=100.0),
            )
        ]
        assert len(set(found)) == len(found)

    def test_any_label_of_a_large_array_counts(self) -> None:
        x, y = np.zeros((5000, 2)), labels(5000)
        other = y.copy()
        other[[1234, 1235]] = other[[1235, 1234]]
        assert fingerprint(from_arrays(x, y)) != fingerprint(from_arrays(x, other))
