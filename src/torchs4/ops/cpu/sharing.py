"""Work that threads share: a function of one task is compiled for one thread, and a small launcher calls it.

numba's parallel loops would compile everything that a loop calls once more for each loop, which takes most of
the time; here they are left to numba's pool of threads alone, which is PyTorch's where that is GNU OpenMP.
"""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import torch
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core import config as numba_config
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from numba.np.ufunc.parallel import _launch_threads, threading_layer

from torchs4.ops.cpu.code_cache import one_process_at_a_time
from torchs4.ops.cpu.compiling import compiled_entry, compiled_worker
from torchs4.ops.cpu.debugging import DEBUGGING

if TYPE_CHECKING:
    from collections.abc import Callable

# numba sets its settings at run time, unseen by type checkers.
_config: Any = numba_config
# GNU OpenMP shares its pool with PyTorch; numba's own pool would fight it for the cores.
_config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]

_WORD = ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()
# What numba's pool calls: starts (here the first task's number), counts, steps, data.
_SHARE = ir.FunctionType(ir.VoidType(), [_BYTES.as_pointer(), _WORD.as_pointer(), _WORD.as_pointer(), _BYTES])
# Its parallel_for: such a function; starts, counts, steps, data; further axes, arrays, threads.
_PARALLEL_FOR = ir.FunctionType(
    ir.VoidType(),
    [
        _BYTES,
        _BYTES.as_pointer(),
        _WORD.as_pointer(),
        _WORD.as_pointer(),
        _BYTES,
        _WORD,
        _WORD,
        ir.IntType(32),
    ],
)


@intrinsic
def _run(typing_context: Any, worker: Any, pool: Any, tasks: Any, threads: Any, arguments: Any) -> Any:
    """Call the worker at an address with each task's number and the arguments; returns how many failed."""
    kinds = (types.intp, *arguments.types)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        worker, pool, tasks, threads, arguments = values
        one, zero = ir.Constant(_WORD, 1), ir.Constant(_WORD, 0)
        kind = ir.LiteralStructType([_WORD, _WORD, arguments.type])
        data = cgutils.alloca_once(builder, kind)
        for place, value in enumerate((worker, zero, arguments)):
            builder.store(value, cgutils.gep_inbounds(builder, data, 0, place))
        share = _emit_share(context, builder.module, kind, kinds)
        first = cgutils.alloca_once_value(builder, ir.Constant(_BYTES, None))
        count, step = cgutils.alloca_once_value(builder, tasks), cgutils.alloca_once_value(builder, one)
        given = builder.bitcast(data, _BYTES)
        with builder.if_else(builder.icmp_signed("==", threads, one)) as (alone, together):
            with alone:
                builder.call(share, [first, count, step, given])
            with together:
                parallel_for = builder.inttoptr(pool, _PARALLEL_FOR.as_pointer())
                few = builder.trunc(threads, ir.IntType(32))
                work = builder.bitcast(share, _BYTES)
                builder.call(parallel_for, [work, first, count, step, given, zero, one, few])
        return builder.load(cgutils.gep_inbounds(builder, data, 0, 1), typ=_WORD)

    return types.intp(worker, pool, tasks, threads, arguments), codegen


def _emit_share(context: Any, module: Any, kind: Any, kinds: tuple[Any, ...]) -> Any:
    """What one thread does: the worker for each task of its share."""
    share = ir.Function(module, _SHARE, module.get_unique_name("share_of_tasks"))
    share.linkage = "internal"
    builder = ir.IRBuilder(share.append_basic_block("entry"))
    starts, counts, _, given = share.args
    data = builder.bitcast(given, kind.as_pointer())
    worker_type = context.call_conv.get_function_type(types.none, kinds)
    address = builder.load(cgutils.gep_inbounds(builder, data, 0, 0), typ=_WORD)
    worker = builder.inttoptr(address, worker_type.as_pointer())
    arguments = builder.load(cgutils.gep_inbounds(builder, data, 0, 2), typ=kind.elements[2])
    first = builder.ptrtoint(builder.load(starts, typ=_BYTES), _WORD)
    packer = context.call_conv._get_arg_packer(kinds)
    result, error = (cgutils.alloca_once(builder, pointer.pointee) for pointer in worker_type.args[:2])
    unpacked = [
        _borrowed(context, builder, kind, value)
        for kind, value in zip(kinds[1:], cgutils.unpack_tuple(builder, arguments), strict=True)
    ]
    with cgutils.for_range(builder, builder.load(counts, typ=_WORD)) as loop:
        task = builder.add(first, loop.index)
        given_values = list(packer.as_arguments(builder, [task, *unpacked]))
        status = builder.call(worker, [result, error, *given_values])
        with builder.if_then(builder.icmp_signed(">", status, ir.Constant(status.type, 0))):
            builder.store(ir.Constant(_WORD, 1), cgutils.gep_inbounds(builder, data, 0, 1))
    builder.ret_void()
    return share


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """An array without its owner, who waits until the work is done: threads would fight over counting it."""
    if isinstance(kind, types.BaseTuple):
        members = zip(kind.types, cgutils.unpack_tuple(builder, value), strict=True)
        return context.make_tuple(builder, kind, [_borrowed(context, builder, *member) for member in members])
    if not isinstance(kind, types.Array):
        return value
    array = make_array(kind)(context, builder, value)
    for owner in ("meminfo", "parent"):
        setattr(array, owner, cgutils.get_null_value(getattr(array, owner).type))
    return array._getvalue()


@compiled_entry()
def _launch(worker, pool, tasks, threads, *arguments):
    return _run(worker, pool, tasks, threads, arguments)


class SharedWork:
    """A compiled function whose first argument is a task's number; called with how many tasks there are."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._worker = (compiled_entry if DEBUGGING else compiled_worker)()(function)
        self._addresses: dict[tuple[Any, ...], int] = {}

    def __call__(self, tasks: int, *arguments: Any) -> None:
        """Do all tasks, with as many threads as PyTorch uses."""
        if tasks < 1:
            return
        if DEBUGGING:
            # The launcher knows only whether something failed.
            for task in range(tasks):
                self._worker(task, *arguments)
            return
        kinds = tuple(map(_kind, arguments))
        address = self._addresses.get(kinds)
        if address is None:
            address = self._addresses[kinds] = self._compile(arguments)
        threads = min(tasks, torch.get_num_threads(), _config.NUMBA_NUM_THREADS)
        pool = _pool.address() if threads > 1 else None
        if pool is None:
            failed = _launch(address, 0, tasks, 1, *arguments)
        else:
            with _pool.turn():
                failed = _launch(address, pool, tasks, threads, *arguments)
        if failed:
            raise MemoryError(
                "Compiled code found no memory to work in. Use a smaller batch or a shorter length."
            )

    def _compile(self, arguments: tuple[Any, ...]) -> int:
        """The address of the worker for arguments of these types."""
        kinds = tuple(map(numba.typeof, arguments))
        words = (types.intp,) * 4
        with one_process_at_a_time(self._worker):
            self._worker.compile((types.intp, *kinds))
            _launch.compile((*words, numba.typeof(arguments)))
        result = self._worker.overloads[(types.intp, *kinds)]
        return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


def shared(function: Callable[..., None]) -> SharedWork:
    """Compile a function of a task's number, whose tasks threads share."""
    return SharedWork(function)


def _kind(argument: Any) -> tuple[Any, ...] | type:
    """What compiled code depends on."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    if isinstance(argument, tuple):
        return type(argument), *map(_kind, argument)
    return type(argument)


class _Pool:
    """numba's pool of threads."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._address = 0
        self._turn = threading.Lock()

    def address(self) -> int | None:
        """Where its parallel_for lies; None in a process that was forked after the pool had started.

        GNU OpenMP does not survive a fork, and ends a process that tries: there, one thread does all.
        """
        if self._process is None:
            threads = torch.get_num_threads()
            _launch_threads()
            self._address = binding.address_of_symbol("numba_parallel_for")
            self._process = os.getpid()
            # Starting the pool resets the OpenMP setting that PyTorch reads.
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
        return self._address if self._process == os.getpid() else None

    def turn(self) -> Any:
        """Numba's own pool aborts the process when two threads enter it; others take turns by themselves."""
        return self._turn if threading_layer() == "workqueue" else nullcontext()


_pool = _Pool()
