"""Train a model: one loop for one process or many, which may be killed and continued at any moment."""

from __future__ import annotations

import math
import signal
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import broadcast, gather_object

from torchs4.layers.precision import widest_dtype
from torchs4.models import build_model
from torchs4.training.asked_model import AskedModel, CarryingModel
from torchs4.training.averaging import WeightAverage
from torchs4.training.batches import BatchStream, Share, growing_rows, share_of, training_rows
from torchs4.training.carrying import (
    CarriedStates,
    carried_rows,
    ordered_split,
    require_carrying,
    require_text,
)
from torchs4.training.checkpoints import has_any, load_newest, load_state, replace_folder, save_state
from torchs4.training.devices import device_random_state, set_device_random_state
from torchs4.training.evaluation import evaluate, move, require_same_names
from torchs4.training.lamb import Lamb
from torchs4.training.parameter_groups import parameter_groups
from torchs4.training.progress import Progress, Speed, StepReport
from torchs4.training.provenance import memory_mb
from torchs4.training.room import require_room
from torchs4.training.schedules import Schedule
from torchs4.training.starting import start_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from accelerate import Accelerator
    from torch import Tensor

    from torchs4.data.sequences import SequenceData
    from torchs4.description import Batch
    from torchs4.models import Model
    from torchs4.training.config import TrainingConfig
    from torchs4.training.display import Display
    from torchs4.training.run_folder import RunFolder

# Seconds after which somebody who waits for the first step wonders.
_SLOW_START = 8.0
_SLOW_START_NOTICE = (
    "Still at the first step. On a new machine the operators are compiled now, once, for about a minute."
)


# Where a loss that is scaled no more than this has gradients beyond float16, it is not for its scale.
_LEAST_SCALE = 1e-3


class TrainingDivergedError(RuntimeError):
    """The loss or its gradient is not a number any more."""


class TrainingInterrupted(Exception):
    """Somebody asked the run to stop; it can be continued."""


class Trainer:
    """A model in training, in a run folder.

    checkpoint_seconds: how often to save between epochs. It decides what a kill costs, not what comes out.
        None saves nothing but the best model: for runs that nobody will continue.
    model: trained further, instead of a new one.
    stop_at: when to stop as if somebody had asked for it, on the clock of time.monotonic().
    clock: what the run's seconds are counted with; time.process_time does not count other programs' work.
    """

    def __init__(
        self,
        config: TrainingConfig[Any],
        data: SequenceData,
        folder: RunFolder,
        display: Display,
        accelerator: Accelerator,
        checkpoint_seconds: float | None = 120.0,
        model: Model | None = None,
        stop_at: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.data = data
        self.task = data.task
        self.metric = data.task.metrics[0]
        self.folder = folder
        self.display = display
        self.accelerator = accelerator
        self.checkpoint_seconds = checkpoint_seconds
        self.stop_at = stop_at
        self.clock = clock
        self.progress = Progress()
        self.share = Share(accelerator.process_index, accelerator.num_processes)
        torch.manual_seed(config.seed)
        if model is None:
            require_room(config.model)
            model = build_model(config.model, data.input, data.task.output)
            start_from(model, data)
        optim = config.optim
        groups = parameter_groups(
            model, optim.lr, optim.weight_decay, optim.ssm_lr, optim.step_size_lr, optim.slow_output
        )
        self.rates = [group["lr"] for group in groups]
        # Before it is prepared: what wraps a model cannot be copied with it.
        self.average = WeightAverage(model.to(accelerator.device), optim.average) if optim.average else None
        kind = Lamb if optim.optimizer == "lamb" else torch.optim.AdamW
        self.carried = CarriedStates() if optim.carry_state else None
        if self.carried is not None:
            require_text(data.train)
            require_carrying(model)
        asked = AskedModel if self.carried is None else CarryingModel
        self.model, self.optimizer = accelerator.prepare(asked(model, self.task), kind(groups))
        # Processes start with the same weights, but drop different values.
        torch.manual_seed(config.seed + 7919 * self.share.rank)
        self.lengths = data.train.lengths if optim.similar_lengths else None
        self.steps_per_epoch = len(self._rows_of(0))
        growth = data.train.growth
        # Until the task's own examples come, what validation says tells nothing about the rate.
        self.growing_epochs = math.ceil(growth.examples / self.examples_per_epoch) if growth else 0
        budget = config.budget
        self.total_steps = budget.epochs * self.steps_per_epoch
        if budget.max_steps:
            self.total_steps = min(self.total_steps, budget.max_steps)
        self.schedule = Schedule(optim, self.metric, self.total_steps, self.steps_per_epoch)
        self._stop_asked = False
        self._speed = Speed()

    @property
    def examples_per_epoch(self) -> int:
        """How many examples an epoch shows: those that do not fill a last batch wait."""
        return self.steps_per_epoch * min(self.config.optim.batch_size, self.data.train.distinct)

    @property
    def bare_model(self) -> Model:
        """The model without what asks and distributes it."""
        asked: AskedModel = self.accelerator.unwrap_model(self.model)
        return asked.model

    @property
    def measured_model(self) -> Model:
        """The model that is measured and kept: the average of the weights, if there is one."""
        return self.bare_model if self.average is None else self.average.model

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do: the budget is spent, or validation has stopped improving."""
        return self._is_spent or self.has_stalled

    @property
    def _is_spent(self) -> bool:
        return self.progress.step >= self.total_steps or self._time_spent >= 1

    @property
    def _time_spent(self) -> float:
        """Which share of its time the run has had; 0 where time does not count."""
        limit = 60 * self.config.budget.max_minutes
        return self.progress.seconds / limit if limit else 0.0

    @property
    def has_stalled(self) -> bool:
        """Whether validation has not improved for as many epochs as the budget waits for."""
        progress, patience = self.progress, self.config.budget.early_stop
        since = max(progress.best_epoch, self.growing_epochs)
        return patience > 0 and progress.batch == 0 and progress.epoch - since >= patience

    def run(self) -> None:
        """Train to the end of the budget."""
        notice = threading.Timer(_SLOW_START, self.display.warn, [_SLOW_START_NOTICE])
        notice.daemon = True
        notice.start()
        try:
            with self._stoppable():
                while not self.is_over:
                    self._train_epoch(notice)
        finally:
            notice.cancel()

    def _train_epoch(self, notice: threading.Timer) -> None:
        progress, budget = self.progress, self.config.budget
        rows = self._rows_of(progress.epoch)
        shares = [share_of(row, self.share) for row in rows]
        augmentation_seed = (self.config.seed, progress.epoch * self.share.processes + self.share.rank)
        split = self.data.train
        if self.carried is not None:
            split = ordered_split(self.data, self.config.seed, progress.epoch)
            if progress.batch == 0:
                self.carried.forget()
        stream = BatchStream(split, shares, progress.batch, augmentation_seed)
        waited_before = progress.waited
        self.model.train()
        saved = started = self.clock()
        for batch in stream:
            examples = rows[progress.batch]
            progress.add(*self._step(batch, examples))
            notice.cancel()
            now = self.clock()
            progress.seconds += now - started
            progress.waited = waited_before + stream.waited
            self._speed.add(len(examples), now - started)
            started = now
            self.display.step(self._report(), self.metric)
            if progress.batch == len(rows) or self._anyone(self._is_spent):
                break
            if budget.evaluate_every and progress.step % budget.evaluate_every == 0:
                self._measure()
                self.model.train()
                started = self.clock()
            stopping = self._anyone(self._must_stop())
            is_due = self.checkpoint_seconds is not None and now - saved >= self.checkpoint_seconds
            if stopping or self._anyone(is_due):
                self.save()
                saved = started = self.clock()
                if stopping:
                    raise TrainingInterrupted
        measured = self._measure()
        if progress.epoch >= self.growing_epochs:
            self.schedule.after_epoch(measured)
        progress.epoch += 1
        progress.start_epoch()
        if self.checkpoint_seconds is not None:
            self.save()
        if not self.is_over and self._anyone(self._must_stop()):
            raise TrainingInterrupted

    def _must_stop(self) -> bool:
        return self._stop_asked or time.monotonic() >= self.stop_at

    def _rows_of(self, epoch: int) -> list[Any]:
        config, examples = self.config, len(self.data.train)
        if config.optim.carry_state:
            return carried_rows(examples, config.optim.batch_size)
        if growth := self.data.train.growth:
            return growing_rows(growth, config.optim.batch_size, config.seed, epoch, self.lengths)
        return training_rows(examples, config.optim.batch_size, config.seed, epoch, self.lengths)

    def _anyone(self, wish: bool) -> bool:
        """Whether any process wishes it: clocks and signals differ, but all must save at the same step."""
        if self.share.processes == 1:
            return wish
        wishes = torch.tensor(float(wish), device=self.accelerator.device)
        return bool(self.accelerator.reduce(wishes, reduction="sum") > 0)

    def _step(self, batch: Batch, rows: Any) -> tuple[list[float], int]:
        """One step of the optimiser: the task's sums over the batch, and how many answers it asked for."""
        optim, accelerator, task = self.config.optim, self.accelerator, self.task
        factor = self.schedule.factor(self.progress.step, self._time_spent)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.zero_grad()
        parts = _cut(batch, optim.accumulate)
        answers = self._in_all([sum(task.count(part) for part in parts)])[0]
        device = accelerator.device
        totals = torch.zeros(task.sum_count, dtype=widest_dtype(device), device=device)
        for index, part in enumerate(parts):
            part = move(part, device)
            last = index == len(parts) - 1
            with nullcontext() if last else accelerator.no_sync(self.model):
                with accelerator.autocast():
                    sums = self._sums(part, index)
                # Processes average their gradients; every answer of the whole batch counts alike.
                accelerator.backward(sums[0] * (self.share.processes / max(answers, 1)))
                totals += sums.detach()
        norm = accelerator.clip_grad_norm_(self.model.parameters(), optim.clip or math.inf)
        # Read together: a device is waited for once in a step.
        *sums_here, gradient = torch.cat([totals, norm.detach().to(totals)[None]]).tolist()
        in_all = self._in_all(sums_here)
        if not (math.isfinite(in_all[0]) and (math.isfinite(gradient) or self._scale_may_fall())):
            raise TrainingDivergedError(self._divergence(in_all[0] / max(answers, 1), gradient, rows))
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.bare_model, self.progress.step)
        return in_all, round(answers)

    def _sums(self, part: Batch, index: int) -> Tensor:
        if self.carried is None:
            sums: Tensor = self.model(part)
            return sums
        sums, state = self.model(part, self.carried.before(index))
        self.carried.keep(index, state)
        return sums

    def _scale_may_fall(self) -> bool:
        """Whether a gradient that float16 could not hold is left out, and the next one scaled less."""
        scaler = self.accelerator.scaler
        return scaler is not None and scaler.get_scale() > _LEAST_SCALE

    def _in_all(self, numbers: list[float]) -> list[float]:
        """These numbers, added up over all processes."""
        if self.share.processes == 1:
            return numbers
        device = self.accelerator.device
        mine = torch.tensor(numbers, dtype=widest_dtype(device), device=device)
        total: list[float] = self.accelerator.reduce(mine, reduction="sum").tolist()
        return total

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
        """Measure on validation, write it down, keep the model if it is the best; the task's first metric."""
        progress, config = self.progress, self.config
        started = self.clock()
        model = self.measured_model
        if self.share.processes > 1:
            # Running means differ between processes; those of the first are saved.
            for buffer in (*self.bare_model.buffers(), *model.buffers()):
                buffer.copy_(broadcast(buffer))
        # Not the model that synchronises processes: the last batch may not have a share for each of them.
        score = evaluate(
            model,
            self.data.validation,
            self.task,
            config.optim.batch_size,
            accelerator=self.accelerator,
            limit=config.budget.validation_examples,
        )
        progress.seconds += self.clock() - started
        value = score.metrics[self.metric.name]
        # A few examples often get the same accuracy: then the loss decides.
        is_best = self.metric.is_better(value, progress.best) or (
            value == progress.best and score.loss < progress.best_loss
        )
        if is_best:
            progress.best, progress.best_loss, progress.best_epoch = value, score.loss, progress.epoch + 1
        progress.measurements += 1
        means = progress.means()
        record = {
            "epoch": progress.epoch + 1,
            "step": progress.step,
            "train_loss": means[0],
            **{f"train_{name}": number for name, number in self.task.scores(means).items()},
            "validation_loss": score.loss,
            **{f"validation_{name}": number for name, number in score.metrics.items()},
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "seconds": round(progress.seconds, 3),
            "input_wait_seconds": round(progress.waited, 3),
            "memory_mb": memory_mb(),
        }
        if self.accelerator.is_main_process:
            self.folder.add_metrics(record)
            if is_best:
                replace_folder(self.folder.best, model.save_pretrained)
        self.display.measured(record, self.metric, is_best, self.data)
        return value

    def save(self) -> None:
        """Write a checkpoint."""
        random_states = gather_object([torch.get_rng_state()])
        device_random_states = gather_object([device_random_state(self.accelerator.device)])
        carried = None if self.carried is None else gather_object([self.carried.saved()])
        if self.accelerator.is_main_process:
            schedule = self.schedule
            state = {
                "progress": asdict(self.progress),
                "schedule": {"reduced": schedule.reduced, "best": schedule.best, "waited": schedule.waited},
                "optimizer": self.optimizer.state_dict(),
                "random_states": random_states,
                "device_random_states": device_random_states,
            }
            if self.average is not None:
                state["average"] = self.average.model.state_dict()
            if carried is not None:
                state["carried"] = carried
            if self.accelerator.scaler is not None:
                state["scaler"] = self.accelerator.scaler.state_dict()

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
        processes, damaged = load_newest(self.folder.last, self._restore)
        for folder in damaged:
            self.display.say(f"{folder} is damaged: continuing from the checkpoint before it.")
        if processes != self.share.processes:
            raise ValueError(
                f"The run was trained by {processes} processes, this is {self.share.processes}: the order of "
                f"examples would differ. Start it as before."
            )
        if self.accelerator.is_main_process:
            self.folder.keep_metrics(self.progress.measurements)

    def _restore(self, place: Path) -> int:
        """Take everything from a checkpoint; by how many processes it was written."""
        state, model = load_state(place), self.bare_model
        try:
            saved = type(model).from_pretrained(place)
            require_same_names(saved, self.data)
            model.load_state_dict(saved.state_dict())
        except RuntimeError as error:
            raise ValueError("it holds another network than the run's config.json describes") from error
        try:
            random_states = state["random_states"]
            self.optimizer.load_state_dict(state["optimizer"])
            self.progress = Progress(**state["progress"])
            for name in ("reduced", "best", "waited"):
                setattr(self.schedule, name, state["schedule"][name])
            if self.average is not None:
                self.average.model.load_state_dict(state["average"])
            if self.accelerator.scaler is not None:
                self.accelerator.scaler.load_state_dict(state["scaler"])
            own = self.share.rank % len(random_states)
            if self.carried is not None:
                self.carried.restore(state["carried"][own], model, self.accelerator.device)
            torch.set_rng_state(random_states[own])
            # Older checkpoints have none.
            device_random_states = state.get("device_random_states")
            if device_random_states is not None:
                set_device_random_state(self.accelerator.device, device_random_states[own])
        except (KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
            raise ValueError(f"{place} does not hold this run's state ({error!r}).") from error
        return len(random_states)

    def _report(self) -> StepReport:
        progress = self.progress
        speed, means = self._speed.per_second(), progress.means()
        left = (self.total_steps - progress.step) * self.config.optim.batch_size / speed if speed else None
        return StepReport(
            epoch=math.ceil((progress.epoch + progress.batch / self.steps_per_epoch) * self.data.passes),
            epochs=math.ceil(self.total_steps / self.steps_per_epoch) * self.data.passes,
            step=progress.step,
            total_steps=self.total_steps,
            loss=means[0],
            metrics=self.task.scores(means),
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
                self.display.warn("Stopping after this step (press Ctrl-C again to stop at once) …")

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _cut(batch: Batch, parts: int) -> list[Batch]:
    if parts == 1:
        return [batch]
    pieces = len(batch.y.chunk(parts))

    def part(index: int) -> Batch:
        return batch.map(lambda tensor: tensor.chunk(parts)[index])

    return [part(index) for index in range(pieces)]
