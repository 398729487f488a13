"""What a training run shows: a live line in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchs4.data.sequences import SequenceData
    from torchs4.tasks import Metric
    from torchs4.training.progress import StepReport

# Seconds between lines where nothing can be redrawn.
_LINE_EVERY = 20.0


class Display:
    """Shows how a run goes. `quiet` shows nothing: only one of several processes should speak."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = console or Console(highlight=False)
        self._quiet = quiet
        self._live: Progress | None = None
        self._task: TaskID | None = None
        self._last_line = 0.0
        self._title = ""

    def __enter__(self) -> Display:
        if not self._quiet and self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(),
            )
            self._live = Progress(*columns, console=self.console, transient=True)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.warn(text)

    def warn(self, text: str) -> None:
        """A line that stays, however little is shown otherwise."""
        if not self._quiet:
            # Whole lines and no markup: a path may be long, may hold brackets, and somebody may copy it.
            self.console.print(text, soft_wrap=True, markup=False)

    def step(self, report: StepReport, metric: Metric) -> None:
        """A training step was taken."""
        if self._quiet:
            return
        figures = f"loss {report.loss:.3f}  {metric.tell(report.metrics[metric.name])}"
        if report.examples_per_second:
            figures += f"  {report.examples_per_second:,.0f} examples/s"
        if self._live is not None:
            if self._task is None:
                self._task = self._live.add_task("", total=report.total_steps, figures="")
            self._live.update(
                self._task,
                description=f"{self._title}epoch {report.epoch}/{report.epochs}",
                completed=report.step,
                figures=figures,
            )
            return
        now = time.monotonic()
        if now - self._last_line >= _LINE_EVERY:
            self._last_line = now
            left = "" if report.seconds_left is None else f"  {_duration(report.seconds_left)} left"
            place = f"epoch {report.epoch}/{report.epochs}  step {report.step}/{report.total_steps}"
            self.warn(f"{self._title}{place}  {figures}{left}")

    def measured(self, record: dict[str, Any], metric: Metric, is_best: bool, data: SequenceData) -> None:
        """The model was measured on validation examples."""
        measured = "the same afterwards" if data.learns_all else "validation"
        parts = (
            f"{title} loss {record[f'{kind}_loss']:.3f} ({metric.tell(record[f'{kind}_{metric.name}'])})"
            for title, kind in (("training", "train"), (measured, "validation"))
        )
        place = f"epoch {record['epoch'] * data.passes:>3}  step {record['step']:>6}"
        text = "  ".join([place, *parts, _duration(record["seconds"])])
        self.say(text + ("  best so far" if is_best else ""))

    def preparing(self) -> Callable[[str, int, int], None]:
        """For data that take a while to get ready; call it with what is done, how much, and of how much."""
        bars: dict[str, Callable[[int, int], None]] = {}

        def update(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = self.counting(what)
            bars[what](done, total)

        return update

    def counting(self, text: str) -> Callable[[int, int], None]:
        """A bar for something that takes a while; call it with how much is done, and of how much."""
        if self._live is None:
            self.say(f"{text} …")
            return lambda done, total: None
        live = self._live
        task = live.add_task(text, total=None, figures="")

        def update(done: int, total: int) -> None:
            live.update(task, completed=done, total=total, visible=done < total)

        return update


class BriefDisplay(Display):
    """The live line alone, or where nothing can be redrawn, a line now and then; short runs show nothing."""

    def __init__(self, title: str = "", console: Console | None = None, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._title = f"{title}  " if title else ""
        self._last_line = time.monotonic()

    def say(self, text: str) -> None:
        pass

    def measured(self, record: dict[str, Any], metric: Metric, is_best: bool, data: SequenceData) -> None:
        pass


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
