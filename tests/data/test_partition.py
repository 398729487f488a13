import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchs4.data.own.partition import divide, require_fractions


@settings(deadline=None, derandomize=True, database=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6).filter(
        lambda sizes: sum(sizes) > len(sizes) + 1
    ),
    validation=st.floats(0.01, 0.6),
    test=st.sampled_from([0.0, 0.1, 0.3]),
    seed=st.integers(0, 100),
)
def test_parts_share_nothing_lose_nothing_and_leave_every_class_in_training(
    sizes: list[int], validation: float, test: float, seed: int
) -> None:
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    try:
        parts = divide(groups, validation, test, seed)
    except ValueError:
        # All that could be spared went to the test.
        assert sum(sizes) - max(1, round(sum(sizes) * test)) <= len(sizes)
        return
    assert sorted(np.concatenate(parts)) == list(range(len(groups)))
    assert set(groups[parts.train]) == set(groups)
    assert len(parts.validation) >= 1
    assert (len(parts.test) >= 1) == (test > 0)
    again = divide(groups, validation, test, seed)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


def test_held_out_parts_have_the_mixture_of_the_whole() -> None:
    groups = np.repeat([0, 1, 2], [600, 300, 100])
    parts = divide(groups, 0.1, 0.2, seed=3)
    assert np.bincount(groups[parts.validation]).tolist() == [60, 30, 10]
    assert np.bincount(groups[parts.test]).tolist() == [120, 60, 20]


def test_the_test_part_does_not_depend_on_the_validation_fraction() -> None:
    groups = np.arange(100) % 4
    first, second = (divide(groups, fraction, 0.2, seed=0).test for fraction in (0.1, 0.3))
    np.testing.assert_array_equal(first, second)


def test_seeds_hold_out_different_examples() -> None:
    groups = np.zeros(1000, np.int64)
    first, second = (set(divide(groups, 0.1, 0, seed).validation.tolist()) for seed in (0, 1))
    assert len(first & second) < 40


def test_a_class_with_one_example_is_trained_on() -> None:
    groups = np.array([0] * 9 + [1])
    for seed in range(20):
        assert 9 in divide(groups, 0.5, 0, seed).train


def test_held_out_examples_are_these_on_every_machine() -> None:
    parts = divide(np.arange(12) % 2, 0.2, 0.2, seed=0)
    assert (parts.validation.tolist(), parts.test.tolist()) == ([5, 8], [2, 9])


def test_single_examples_of_classes_cannot_be_held_out() -> None:
    with pytest.raises(ValueError, match="every class keeps at least one to train on"):
        divide(np.arange(5), 0.2, 0, seed=0)


@pytest.mark.parametrize(
    ("validation", "test", "message"),
    [
        (0, 0, "validation fraction is 0; it must lie between 0 and 1"),
        (float("nan"), 0, "validation fraction is nan"),
        (1, 0, "validation fraction is 1"),
        (0.1, -0.1, "test fraction is -0.1; it must be 0"),
        (0.5, 0.5, "leave nothing to train on"),
        (None, 1.0, "test fraction is 1.0"),
    ],
)
def test_fractions_must_leave_something_in_every_part(
    validation: float | None, test: float | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        require_fractions(validation, test)
