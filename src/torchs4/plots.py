"""Pictures of kernels and predictions. Each function returns a matplotlib Figure; the caller saves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from torchs4.tasks import Metric

_INK = "#2b2d42"
_QUIET = "#9a9ca8"
_FAINT = "#e6e7ec"
_BLUE = "#2a6f97"
_RED = "#d1495b"
# What the solid and the dotted lines of a run are.
CURVES = ("validation", "training")

_COLUMNS = 4
# Pictures of a partly read digit, evenly spaced; the last one is whole.
_THUMBNAILS = 7
# Of the length: names of shorter stretches would only pile up.
_SHORTEST_NAMED = 0.02


def plot_kernels(kernels: Float[Tensor, "count L"], titles: Sequence[str] | None = None) -> Figure:
    """Convolution kernels side by side: how much an input still counts so many steps later.

    Time is the same for all panels, so long and short memories compare; heights are each panel's own.
    """
    if kernels.ndim != 2 or 0 in kernels.shape:
        raise ValueError(f"kernels has shape {tuple(kernels.shape)}; expected (count, length), neither zero.")
    count, length = kernels.shape
    if titles is not None and len(titles) != count:
        raise ValueError(f"There are {len(titles)} titles for {count} kernels; give one for each.")
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    figure = _figure(2.6 * columns + 0.4, 1.55 * rows + 0.75)
    for index, kernel in enumerate(kernels.detach().float().cpu().numpy()):
        axes = figure.add_subplot(rows, columns, index + 1)
        axes.axhline(0, color=_FAINT, linewidth=1, zorder=0)
        axes.fill_between(range(length), kernel, color=_BLUE, alpha=0.18, linewidth=0)
        axes.plot(kernel, color=_BLUE, linewidth=1.1)
        limit = 1.12 * float(abs(kernel).max()) or 1.0
        axes.set_ylim(-limit, limit)
        axes.set_xlim(-0.01 * length, length)
        axes.set_title(
            titles[index] if titles is not None else str(index), fontsize=9, color=_INK, loc="left"
        )
        _strip(axes)
        axes.set_yticks([])
        axes.tick_params(labelbottom=index + columns >= count)
    figure.supxlabel("steps after the input", fontsize=9, color=_INK)
    return figure


def plot_layers(
    kernels: Mapping[str, Float[Tensor, "count L"]],
    image: tuple[int, int] | None = None,
    frame: int = 1,
) -> Figure:
    """Kernels of several layers, a row for each: as curves, or, for pictures read row by row, as pictures.

    In a picture, the kernel's first value is at the top left: it shows how much a pixel counts by where it
    lies before the one that is read. Blue is positive, red negative. Where positions are frames of several
    pixels side by side, `image` counts frames, and each is drawn as wide as it is.
    """
    columns = max(len(rows) for rows in kernels.values())
    figure = _figure(1.5 * columns + 0.9, 1.5 * len(kernels) + 0.7)
    length = max(rows.shape[1] for rows in kernels.values())
    figure.suptitle(
        f"How much an input still counts up to {length:,} positions later: kernels, short memories first",
        fontsize=9,
        color=_INK,
    )
    grid = figure.subplots(len(kernels), columns, squeeze=False)
    for axes_row, (title, rows) in zip(grid, kernels.items(), strict=True):
        axes_row[0].set_ylabel(title, fontsize=9, color=_INK)
        for axes in axes_row[len(rows) :]:
            axes.set_axis_off()
        for axes, kernel in zip(axes_row, rows.detach().float().cpu(), strict=False):
            limit = float(kernel.abs().max()) or 1.0
            if image is None:
                axes.plot(kernel.numpy(), color=_BLUE, linewidth=0.8)
                axes.set_ylim(-1.1 * limit, 1.1 * limit)
            else:
                picture = kernel.view(image).numpy()
                axes.imshow(picture, cmap="RdBu", vmin=-limit, vmax=limit, aspect=1 / frame)
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_color(_FAINT)
    return figure


def plot_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], metric: Metric, kinds: tuple[str, str] = CURVES
) -> Figure:
    """Loss and a metric of one or more runs against the step; kinds: what lines are and what dots are."""
    figure = _figure(9.0, 3.4)
    panels = figure.subplots(1, 2)
    colours = (_BLUE, _RED, "#edae49", "#66a182", "#6a4c93", _INK)
    for number, (name, records) in enumerate(runs.items()):
        colour = colours[number % len(colours)]
        steps = [record["step"] for record in records]
        for axes, what in zip(panels, ("loss", metric.name), strict=True):
            for kind, style in (
                ("validation", {"label": name, "marker": "o"}),
                ("train", {"linestyle": ":", "marker": "x"}),
            ):
                values = [record[f"{kind}_{what}"] for record in records]
                if what == metric.name:
                    values = [metric.shown(value) for value in values]
                # Without markers a single point would not show; many would hide the line.
                axes.plot(steps, values, color=colour, markersize=4 if len(steps) < 20 else 0, **style)
    for axes, what in zip(panels, ("loss", metric.label), strict=True):
        axes.set_title(f"{what} (solid: {kinds[0]}, dotted: {kinds[1]})", fontsize=9, color=_INK, loc="left")
        axes.set_xlabel("step", fontsize=9, color=_INK)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(color=_FAINT)
        _strip(axes)
    if len(runs) > 1:
        panels[1].legend(frameon=False, fontsize=8)
    return figure


def plot_forming_prediction(
    image: Float[Tensor, "rows columns"], probabilities: Float[Tensor, "L classes"], true_class: int
) -> Figure:
    """How a prediction forms while an image is read pixel by pixel, row by row.

    probabilities: one row for each pixel, of what is predicted once it has been read.
    """
    length, classes = _require_pixels(image, probabilities)
    if not 0 <= true_class < classes:
        raise ValueError(
            f"true_class is {true_class}; the probabilities are for the classes 0 to {classes - 1}."
        )
    pixels = image.detach().float().cpu()
    chances = probabilities.detach().float().cpu()

    figure = _figure(9.2, 5.2)
    figure.suptitle(f"Read pixel by pixel; the true class, {true_class}, is red", fontsize=11, color=_INK)
    grid = figure.add_gridspec(2, _THUMBNAILS, height_ratios=[1, 2.6])
    for index in range(_THUMBNAILS):
        seen = max(1, (index + 1) * length // _THUMBNAILS)
        guess = int(chances[seen - 1].argmax())
        axes = figure.add_subplot(grid[0, index])
        _draw_partly_read(axes, pixels, seen)
        axes.set_title(f"reads {guess}", fontsize=10, color=_RED if guess == true_class else _BLUE)

    axes = figure.add_subplot(grid[1, :])
    _draw_chances(axes, chances, true_class)
    axes.set_xlabel("pixels read", fontsize=9, color=_INK)
    axes.set_ylabel("probability", fontsize=9, color=_INK)
    return figure


class ForecastPanel(NamedTuple):
    """The end of a series and its forecast.

    past_times, past: times and numbers of the history, as arrays.
    quantiles: (H, q) at q levels, for each of the H times ahead; the middle one is the forecast.
    truth: what came.
    """

    title: str
    past_times: Any
    past: Any
    times: Any
    quantiles: Any
    truth: Any = None


def plot_forecasts(panels: Sequence[ForecastPanel], levels: Sequence[float]) -> Figure:
    """Forecasts below one another, each in the middle of intervals that fade as they widen."""
    figure = _figure(9.0, 0.6 + 3.0 * len(panels))
    for row, panel in enumerate(panels, 1):
        _draw_forecast(figure.add_subplot(len(panels), 1, row), panel, levels)
    return figure


def _draw_forecast(axes: Axes, panel: ForecastPanel, levels: Sequence[float]) -> None:
    times, quantiles = panel.times, panel.quantiles
    axes.plot(panel.past_times, panel.past, color=_INK, linewidth=1.1, label="history")
    middle = len(levels) // 2
    for level in range(middle):
        axes.fill_between(
            times,
            quantiles[:, level],
            quantiles[:, -1 - level],
            # Opaque, so that the legend shows the same shades.
            color=_blended(_BLUE, 0.16 + 0.3 * level / middle),
            linewidth=0,
            label=f"{1 - 2 * levels[level]:.0%} interval",
        )
    axes.plot(times, quantiles[:, middle], color=_BLUE, linewidth=1.6, label="forecast")
    if panel.truth is not None:
        axes.plot(times, panel.truth, color=_RED, linewidth=1.1, label="what came")
    axes.axvline(panel.past_times[-1], color=_QUIET, linewidth=0.8, linestyle=":")
    axes.set_title(panel.title, fontsize=10, color=_INK, loc="left")
    axes.grid(color=_FAINT)
    axes.margins(x=0.01)
    _strip(axes)
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=5)
    low, high = axes.get_ylim()
    # Room for the legend above everything.
    axes.set_ylim(low, high + 0.14 * (high - low))


def _draw_partly_read(axes: Axes, pixels: Float[Tensor, "rows columns"], seen: int) -> None:
    """The image with the pixels that are still to come greyed out."""
    rows, columns = pixels.shape
    read = (pixels.new_ones(rows * columns).cumsum(0) <= seen).view(rows, columns)
    shown = (1 - pixels).where(read, pixels.new_tensor(0.9))
    axes.imshow(shown.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(_FAINT)


def _draw_chances(axes: Axes, chances: Float[Tensor, "L classes"], true_class: int) -> None:
    """One line for each class, named where it leads; the true class stands out."""
    length, classes = chances.shape
    leaders = chances.argmax(dim=1)
    for label in range(classes):
        true, leads = label == true_class, bool((leaders == label).any())
        axes.plot(
            range(1, length + 1),
            chances[:, label].numpy(),
            color=_RED if true else _BLUE if leads else _QUIET,
            linewidth=2.4 if true else 1.2,
            alpha=1.0 if true or leads else 0.5,
            zorder=3 if true else 2,
        )
    _name_leaders(axes, chances, true_class)
    axes.set_xlim(0, length)
    axes.set_ylim(0, 1.1)
    axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    # The lines of the grid are the moments of the pictures above.
    axes.set_xticks([round(index * length / _THUMBNAILS) for index in range(_THUMBNAILS + 1)])
    axes.grid(axis="x", color=_FAINT)
    _strip(axes)


def _name_leaders(axes: Axes, chances: Float[Tensor, "L classes"], true_class: int) -> None:
    """Write each class at the top of every stretch that it leads, short ones left out."""
    length = len(chances)
    stretches, lengths = chances.argmax(dim=1).unique_consecutive(return_counts=True)
    start = 0
    for label, steps in zip(stretches.tolist(), lengths.tolist(), strict=True):
        top = start + int(chances[start : start + steps, label].argmax())
        start += steps
        if steps < _SHORTEST_NAMED * length:
            continue
        axes.annotate(
            str(label),
            (top + 1, float(chances[top, label])),
            textcoords="offset points",
            xytext=(0, 4),
            ha="right" if top > 0.97 * length else "left" if top < 0.03 * length else "center",
            fontsize=11,
            fontweight="bold" if label == true_class else "normal",
            color=_RED if label == true_class else _BLUE,
        )


def _blended(colour: str, share: float) -> tuple[float, ...]:
    """So much of a colour on white."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return tuple(1 - share * (1 - part) for part in parts)


def _strip(axes: Axes) -> None:
    """Leave only what carries information."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_QUIET)
    axes.tick_params(colors=_INK, labelsize=8, length=2)


def _require_pixels(image: Tensor, probabilities: Tensor) -> tuple[int, int]:
    if (
        image.ndim != 2
        or probabilities.ndim != 2
        or image.numel() != len(probabilities)
        or image.numel() == 0
    ):
        raise ValueError(
            f"image has shape {tuple(image.shape)} and probabilities {tuple(probabilities.shape)}; expected "
            f"(rows, columns) and (rows·columns, classes): one prediction for each pixel."
        )
    length, classes = probabilities.shape
    return length, classes


def _figure(width: float, height: float) -> Figure:
    # Without pyplot there is no global state, no window and no choice of backend.
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError(
            'Pictures need matplotlib. Install it with: pip install "torchs4[train]"'
        ) from error
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    return Figure(figsize=(width, height), layout=layout, dpi=150)
