import sys
from pathlib import Path

import pytest
import torch

from torchs4.plots import plot_curves, plot_forming_prediction, plot_kernels, plot_layers
from torchs4.tasks import ACCURACY

THUMBNAILS = 7


@pytest.mark.parametrize("count", [1, 3, 4, 8, 9])
def test_every_kernel_gets_a_panel(count: int, tmp_path: Path) -> None:
    figure = plot_kernels(torch.randn(count, 50))
    assert len(figure.axes) == count
    figure.savefig(tmp_path / "kernels.png")
    assert (tmp_path / "kernels.png").stat().st_size > 1000


def test_panels_share_time_and_carry_titles() -> None:
    figure = plot_kernels(torch.randn(2, 50), titles=["slow", "fast"])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["slow", "fast"]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


@pytest.mark.parametrize("kernel", [torch.zeros(1, 20), torch.ones(1, 1), torch.randn(1, 9).double()])
def test_flat_short_and_double_kernels_are_drawn(kernel: torch.Tensor, tmp_path: Path) -> None:
    plot_kernels(kernel.requires_grad_()).savefig(tmp_path / "kernels.png")


def test_kernels_over_frames_of_pixels_are_as_wide_as_what_they_see() -> None:
    kernels = {"first": torch.randn(3, 32 * 8), "last": torch.randn(2, 32 * 8)}
    figure = plot_layers(kernels, (32, 8), frame=4)
    assert [axes.get_ylabel() for axes in figure.axes[::3]] == ["first", "last"]
    for axes in figure.axes[:5]:
        (picture,) = axes.images
        assert picture.get_array().shape == (32, 8)
        # Eight frames of four pixels are as wide as 32 rows are high.
        assert axes.get_aspect() == 1 / 4
    assert not figure.axes[5].images


def test_wrong_shapes_of_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(1, 2, 3\)"):
        plot_kernels(torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match=r"\(0, 3\)"):
        plot_kernels(torch.zeros(0, 3))
    with pytest.raises(ValueError, match="1 titles for 2 kernels"):
        plot_kernels(torch.zeros(2, 3), titles=["only"])


def test_forming_prediction_has_thumbnails_and_one_line_for_each_class(tmp_path: Path) -> None:
    image, probabilities = torch.rand(28, 28), torch.randn(784, 10).cumsum(dim=0).softmax(dim=1)
    figure = plot_forming_prediction(image, probabilities, true_class=3)
    *thumbnails, chances = figure.axes
    assert len(thumbnails) == THUMBNAILS
    assert len(chances.lines) == 10
    figure.savefig(tmp_path / "prediction.png")
    assert (tmp_path / "prediction.png").stat().st_size > 1000


def test_thumbnails_name_the_prediction_of_their_moment() -> None:
    # 14 pixels: class 0 leads the first half, class 1 the second; a picture after every second pixel.
    probabilities = torch.tensor([[0.9, 0.1]] * 7 + [[0.2, 0.8]] * 7)
    figure = plot_forming_prediction(torch.rand(2, 7), probabilities, true_class=1)
    titles = [axes.get_title() for axes in figure.axes[:THUMBNAILS]]
    assert titles == ["reads 0"] * 3 + ["reads 1"] * 4


def test_leading_classes_are_named_where_they_lead() -> None:
    probabilities = torch.tensor([[0.9, 0.1, 0.0]] * 7 + [[0.2, 0.8, 0.0]] * 7)
    figure = plot_forming_prediction(torch.rand(2, 7), probabilities, true_class=1)
    assert [text.get_text() for text in figure.axes[-1].texts] == ["0", "1"]


def test_image_smaller_than_the_number_of_thumbnails_is_drawn(tmp_path: Path) -> None:
    plot_forming_prediction(torch.rand(1, 2), torch.full((2, 3), 1 / 3), 0).savefig(tmp_path / "tiny.png")


def test_predictions_that_do_not_fit_the_image_are_refused() -> None:
    with pytest.raises(ValueError, match="one prediction for each pixel"):
        plot_forming_prediction(torch.rand(28, 28), torch.rand(783, 10), 0)
    with pytest.raises(ValueError, match="true_class is 10"):
        plot_forming_prediction(torch.rand(28, 28), torch.rand(784, 10), 10)


@pytest.mark.parametrize("points", [1, 30])
def test_curves_run_along_steps_and_single_points_show(points: int) -> None:
    names = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy")
    records = [{"epoch": 1, "step": 50 * i, **dict.fromkeys(names, 0.5)} for i in range(points)]
    loss, accuracy = plot_curves({"run": records}, ACCURACY).axes
    for axes, level in ((loss, 0.5), (accuracy, 50)):
        assert len(axes.lines) == 2
        for line in axes.lines:
            assert line.get_xdata().tolist() == [50 * i for i in range(points)]
            assert set(line.get_ydata()) == {level}
            assert (line.get_markersize() > 0) == (points == 1)


def test_missing_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules makes the import fail as if the package were absent.
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"torchs4\[train\]"):
        plot_kernels(torch.zeros(1, 4))
