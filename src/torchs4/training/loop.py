"""Train a classifier: one loop for one process or many, which may be killed and continued at any moment."""

from __future__ import annotations

import math
import signal
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from accelerate.utils import broadcast, gather_object

from torchs4.training.batches import BatchStream, Share, share_of, training_rows
from torchs4.training.checkpoints import has_any, load_state, newest, replace_folder, save_state
from torchs4.training.evaluation import classification_loss, evaluate, move
from torchs4.training.parameter_groups import parameter_groups
from torchs4.training.provenance import memory_mb
from torchs4.training.schedules import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from accelerate import Accelerator

    from torchs4.data.sequences import Batch, SequenceData
    from torchs4.models import PairModel, SequenceModel
    from torchs4.training.config import TrainingConfig
    from torchs4.training.display import Display
    from torchs4.training.run_folder import RunFolder

# Seconds after which somebody who waits for the first step wonders.
_SLOW_START = 8.0
_SLOW_START_NOTICE = (
    "Still at the first step. On a new machine the operators are compiled now, once, for about a minute."
)


class TrainingDivergedError(RuntimeError):
    """The loss or its gradient is not a number any more."""


class TrainingInterrupted(Exception):
    """Somebody asked the run to stop; it can be continued."""


class StepReport(NamedTuple):
    """How the run stands after a step. Loss and accuracy are means over the epoch so far.

    After the first step, which prepares, speed and time left are not known yet: 0 and None.
    """

    epoch: int
    epochs: int
    step: int
    total_steps: int
    loss: float
    accuracy: float
    examples_per_second: float
    seconds_left: float | None


@dataclass
class Progress:
    """How far a run is: what a checkpoint holds beside weights and optimiser.

    batch: the next one of this epoch. loss_sum, right, examples: of this epoch so far.
    seconds: of training and measuring, in all. waited: of these, for data.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    loss_sum: float = 0.0
    right: int = 0
    examples: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    measurements: int = 0
    best_accuracy: float = -math.inf
    best_epoch: int = 0

    def start_epoch(self) -> None:
        """Forget the epoch that is over."""
        self.batch, self.loss_sum, self.right, self.examples = 0, 0.0, 0, 0


class Trainer:
    """A model in training, in a run folder.

    checkpoint_seconds: how often to save between epochs. It decides what a kill costs, not what comes out.
    """

    def __init__(
        self,
        config: TrainingConfig[Any],
        data: SequenceData,
        folder: RunFolder,
        display: Display,
        accelerator: Accelerator,
        checkpoint_seconds: float = 120.0,
    ) -> None:
        self.config = config
        self.data = data
        self.folder = folder
        self.display = display
        self.accelerator = accelerator
        self.checkpoint_seconds = checkpoint_seconds
        self.progress = Progress()
        self.share = Share(accelerator.process_index, accelerator.num_processes)
        torch.manual_seed(config.seed)
        model = config.model.build(data.input, len(data.classes))
        optim = config.optim
        groups = parameter_groups(model, optim.lr, optim.weight_decay, optim.ssm_lr, optim.step_size_lr)
        self.rates = [group["lr"] for group in groups]
        self.model, self.optimizer = accelerator.prepare(model, torch.optim.AdamW(groups))
        # Processes start with the same weights, but drop different values.
        torch.manual_seed(config.seed + 7919 * self.share.rank)
        self.lengths = data.train.lengths if optim.similar_lengths else None
        self.steps_per_epoch = len(self._rows_of(0))
        budget = config.budget
        self.total_steps = budget.epochs * self.steps_per_epoch
        if budget.max_steps:
            self.total_steps = min(self.total_steps, budget.max_steps)
        self.schedule = Schedule(optim, self.total_steps, self.steps_per_epoch)
        self._stop_asked = False
        self._speed = _Speed()

    @property
    def bare_model(self) -> SequenceModel | PairModel:
        """The model without what distributes it."""
        model: SequenceModel | PairModel = self.accelerator.unwrap_model(self.model)
        return model

    def run(self) -> None:
        """Train to the end of the budget."""
        notice = threading.Timer(_SLOW_START, self.display.say, [_SLOW_START_NOTICE])
        notice.daemon = True
        notice.start()
        try:
            with self._stoppable():
                while self.progress.step < self.total_steps:
                    self._train_epoch(notice)
        finally:
            notice.cancel()

    def _train_epoch(self, notice: threading.Timer) -> None:
        progress, optim, budget = self.progress, self.config.optim, self.config.budget
        rows = self._rows_of(progress.epoch)
        shares = [share_of(row, self.share) for row in rows]
        augmentation_seed = (self.config.seed, progress.epoch * self.share.processes + self.share.rank)
        stream = BatchStream(self.data.train, shares, progress.batch, augmentation_seed)
        waited_before = progress.waited
        self.model.train()
        saved = started = time.monotonic()
        for batch in stream:
            loss, right = self._step(batch, rows[progress.batch])
            notice.cancel()
            progress.step += 1
            progress.batch += 1
            progress.loss_sum += loss * optim.batch_size
            progress.right += right
            progress.examples += optim.batch_size
            now = time.monotonic()
            progress.seconds += now - started
            progress.waited = waited_before + stream.waited
            self._speed.add(optim.batch_size, now - started)
            started = now
            self.display.step(self._report())
            over = progress.step >= self.total_steps
            if progress.batch == len(rows) or over:
                break
            if budget.evaluate_every and progress.step % budget.evaluate_every == 0:
                self._measure()
                self.model.train()
                started = time.monotonic()
            stopping = self._anyone(self._stop_asked)
            if stopping or self._anyone(now - saved >= self.checkpoint_seconds):
                self.save()
                saved = started = time.monotonic()
                if stopping:
                    raise TrainingInterrupted
        self.schedule.after_epoch(self._measure())
        progress.epoch += 1
        progress.start_epoch()
        self.save()
        if progress.step < self.total_steps and self._anyone(self._stop_asked):
            raise TrainingInterrupted

    def _rows_of(self, epoch: int) -> list[Any]:
        config = self.config
        return training_rows(len(self.data.train), config.optim.batch_size, config.seed, epoch, self.lengths)

    def _anyone(self, wish: bool) -> bool:
        """Whether any process wishes it: clocks and signals differ, but all must save at the same step."""
        if self.share.processes == 1:
            return wish
        wishes = torch.tensor(float(wish), device=self.accelerator.device)
        return bool(self.accelerator.reduce(wishes, reduction="sum") > 0)

    def _step(self, batch: Batch, rows: Any) -> tuple[float, int]:
        """One step of the optimiser: the mean loss of the whole batch, and its right answers."""
        optim, accelerator = self.config.optim, self.accelerator
        factor = self.schedule.factor(self.progress.step)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.zero_grad()
        parts = _cut(batch, optim.accumulate)
        totals = torch.zeros(2, dtype=torch.float64, device=accelerator.device)
        for index, part in enumerate(parts):
            part = move(part, accelerator.device)
            last = index == len(parts) - 1
            with nullcontext() if last else accelerator.no_sync(self.model):
                with accelerator.autocast():
                    loss, right = classification_loss(self.model, part)
                # Processes average their gradients: each counts by its share of the batch.
                share = len(part.y) / len(rows)
                accelerator.backward(loss * (share * self.share.processes))
                totals += torch.stack([loss.detach().double() * share, right.double()])
        if self.share.processes > 1:
            totals = accelerator.reduce(totals, reduction="sum")
        norm = accelerator.clip_grad_norm_(self.model.parameters(), optim.clip or math.inf)
        mean_loss, right_sum = totals.tolist()
        if not (math.isfinite(mean_loss) and math.isfinite(float(norm))):
            raise TrainingDivergedError(self._divergence(mean_loss, float(norm), rows))
        self.optimizer.step()
        return mean_loss, round(right_sum)

    def _divergence(self, loss: float, norm: float, rows: Any) -> str:
        progress, last = self.progress, self.folder.last
        kept = f"The last good checkpoint is in {last}." if has_any(last) else "No checkpoint was due before."
        return (
            f"Training stopped at epoch {progress.epoch + 1}, step {progress.step + 1}: the loss is {loss}, "
            f"the norm of its gradient {norm}. The batch held examples {', '.join(map(str, rows[:5]))} … of "
            f"the training split. {kept} Usual cures: a smaller "
            f"--optim.lr or --optim.ssm-lr, more --optim.warmup-steps, or --optim.clip 1.0."
        )

    def _measure(self) -> float:
        """Measure on validation, write it down, keep the model if it is the best; its accuracy."""
        progress, config = self.progress, self.config
        started = time.monotonic()
        model = self.bare_model
        if self.share.processes > 1:
            # Running means differ between processes; those of the first are saved.
            for buffer in model.buffers():
                buffer.copy_(broadcast(buffer))
        # Not the model that synchronises processes: the last batch may not have a share for each of them.
        score = evaluate(
            model,
            self.data.validation,
            config.optim.batch_size,
            accelerator=self.accelerator,
            limit=config.budget.validation_examples,
        )
        progress.seconds += time.monotonic() - started
        is_best = score.accuracy > progress.best_accuracy
        if is_best:
            progress.best_accuracy, progress.best_epoch = score.accuracy, progress.epoch + 1
        progress.measurements += 1
        record = {
            "epoch": progress.epoch + 1,
            "step": progress.step,
            "train_loss": progress.loss_sum / progress.examples,
            "train_accuracy": progress.right / progress.examples,
            "validation_loss": score.loss,
            "validation_accuracy": score.accuracy,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "seconds": round(progress.seconds, 3),
            "input_wait_seconds": round(progress.waited, 3),
            "memory_mb": memory_mb(),
        }
        if self.accelerator.is_main_process:
            self.folder.add_metrics(record)
            if is_best:
                replace_folder(self.folder.best, model.save_pretrained)
        self.display.measured(record, is_best)
        return score.accuracy

    def save(self) -> None:
        """Write a checkpoint."""
        random_states = gather_object([torch.get_rng_state()])
        if self.accelerator.is_main_process:
            schedule = self.schedule
            state = {
                "progress": asdict(self.progress),
                "schedule": {"reduced": schedule.reduced, "best": schedule.best, "waited": schedule.waited},
                "optimizer": self.optimizer.state_dict(),
                "random_states": random_states,
            }

            def write(folder: Path) -> None:
                self.bare_model.save_pretrained(folder)
                save_state(folder, state)

            replace_folder(self.folder.last, write)
        self.accelerator.wait_for_everyone()

    def resume(self) -> None:
        """Continue from the newest whole checkpoint, or from the beginning if none was due before the end."""
        if not has_any(self.folder.last):
            self.display.say(f"{self.folder.path} has no checkpoint yet: starting from the beginning.")
            # What was measured since is measured again.
            if self.accelerator.is_main_process:
                self.folder.keep_metrics(0)
            return
        place, damaged = newest(self.folder.last)
        for folder in damaged:
            self.display.say(f"{folder} is damaged: continuing from {place.name}, the one before it.")
        state = load_state(place)
        processes = len(state["random_states"])
        if processes != self.share.processes:
            raise ValueError(
                f"The run was trained by {processes} processes, this is {self.share.processes}: the order of "
                f"examples would differ. Start it as before."
            )
        model = self.bare_model
        model.load_state_dict(type(model).from_pretrained(place).state_dict())
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(**state["progress"])
        for name, value in state["schedule"].items():
            setattr(self.schedule, name, value)
        torch.set_rng_state(state["random_states"][self.share.rank])
        if self.accelerator.is_main_process:
            self.folder.keep_metrics(self.progress.measurements)

    def _report(self) -> StepReport:
        progress = self.progress
        speed = self._speed.per_second()
        left = (self.total_steps - progress.step) * self.config.optim.batch_size / speed if speed else None
        return StepReport(
            epoch=progress.epoch + 1,
            epochs=math.ceil(self.total_steps / self.steps_per_epoch),
            step=progress.step,
            total_steps=self.total_steps,
            loss=progress.loss_sum / progress.examples,
            accuracy=progress.right / progress.examples,
            examples_per_second=speed,
            seconds_left=left,
        )

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """The first Ctrl-C asks for a stop after this step; the second one ends at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: Any) -> None:
            # A launcher that is interrupted passes it on as SIGTERM: that is not a second Ctrl-C.
            if self._stop_asked and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._stop_asked = True
            # The signal may have come in the middle of another line.
            with suppress(RuntimeError):
                self.display.say("Stopping after this step (press Ctrl-C again to stop at once) …")

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Speed:
    """Examples per second, of late. The first step, which compiles and prepares, does not count."""

    def __init__(self) -> None:
        self._is_first = True
        self._examples = 0.0
        self._seconds = 0.0

    def add(self, examples: int, seconds: float) -> None:
        if self._is_first:
            self._is_first = False
            return
        # Older steps count less and less.
        self._examples = 0.95 * self._examples + examples
        self._seconds = 0.95 * self._seconds + seconds

    def per_second(self) -> float:
        return self._examples / self._seconds if self._seconds else 0.0


def _cut(batch: Batch, parts: int) -> list[Batch]:
    if parts == 1:
        return [batch]
    xs, ys = batch.x.chunk(parts), batch.y.chunk(parts)
    lengths = [None] * len(ys) if batch.lengths is None else batch.lengths.chunk(parts)
    return [batch._replace(x=x, y=y, lengths=n) for x, y, n in zip(xs, ys, lengths, strict=True)]
