"""Two sequences as real and imaginary part of one transform, each brought to its own size before.

A transform rounds both parts alike, relative to the larger one. So every feature of a sequence is multiplied
by a power of two that brings its largest number near 1, which rounds nothing, and multiplied back at the end.
No factor helps NaN and infinity: a sequence that has one shares its transform with nobody.

A workspace has rows of eight features; `scale` and `back` hold eight factors for each part.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.vectors import LANES, Value, instruction, load_vector, store_vector


def _emit_load(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    """(target, signal, peaks; places in signal and peaks, gap of the signal's rows, count of rows)."""
    (target, signal, peaks), (place, peaks_place, gap, count) = arrays, integers
    bits = 64 if isinstance(element, ir.DoubleType) else 32
    whole = ir.VectorType(ir.IntType(bits), LANES)
    without_sign = ir.Constant(whole, [2 ** (bits - 1) - 1] * LANES)
    # As whole numbers, sizes keep their order, with infinity above them and NaN above infinity.
    peak = cgutils.alloca_once(builder, whole)
    builder.store(ir.Constant(whole, [0] * LANES), peak)
    with cgutils.for_range(builder, count) as loop:
        row = load_vector(builder, element, signal, builder.add(place, builder.mul(loop.index, gap)))
        store_vector(row, element, target, builder.mul(loop.index, ir.Constant(place.type, LANES)))
        size = builder.and_(builder.bitcast(row.value, whole), without_sign)
        highest = builder.load(peak, typ=whole)
        builder.store(builder.select(builder.icmp_signed(">", size, highest), size, highest), peak)
    highest = builder.bitcast(builder.load(peak, typ=whole), ir.VectorType(element, LANES))
    store_vector(Value(builder, highest), element, peaks, peaks_place)


def _emit_store(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    """(signal, source, factors; places in signal and factors, gap of the signal's rows, count of rows)."""
    (signal, source, factors), (place, factors_place, gap, count) = arrays, integers
    factor = load_vector(builder, element, factors, factors_place)
    with cgutils.for_range(builder, count) as loop:
        row = load_vector(builder, element, source, builder.mul(loop.index, ir.Constant(place.type, LANES)))
        store_vector(row * factor, element, signal, builder.add(place, builder.mul(loop.index, gap)))


def _emit_factors(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    """(scale, back; place): from the peaks in `back`, powers of two that bring them near 1, and undo it."""
    (scale, back), (place,) = arrays, integers
    bits, mantissa, bias = (64, 52, 1023) if isinstance(element, ir.DoubleType) else (32, 23, 127)
    whole = ir.VectorType(ir.IntType(bits), LANES)

    def constant(number: int) -> Any:
        return ir.Constant(whole, [number << mantissa] * LANES)

    peak = load_vector(builder, element, back, place)
    # The exponent alone is the power of two below a number.
    power = builder.and_(builder.bitcast(peak.value, whole), constant(2 * bias + 1))
    bad = builder.icmp_signed("==", power, constant(2 * bias + 1))
    # Both factors have to be normal numbers.
    for comparison, border in (("<", 1), (">", 2 * bias - 1)):
        beyond = builder.icmp_signed(comparison, power, constant(border))
        power = builder.select(beyond, constant(border), power)
    power = builder.select(bad, constant(bias), power)
    nothing = ir.Constant(peak.value.type, [0.0] * LANES)
    empty = builder.fcmp_ordered("==", peak.value, nothing)
    reciprocal = builder.bitcast(builder.sub(constant(2 * bias), power), peak.value.type)
    one = ir.Constant(peak.value.type, [1.0] * LANES)
    store_vector(Value(builder, builder.select(empty, one, reciprocal)), element, scale, place)
    # What rounding leaves in an empty part is not its own.
    power = builder.select(empty, nothing, builder.bitcast(power, peak.value.type))
    store_vector(Value(builder, power), element, back, place)


_load_rows = instruction(3, 4, _emit_load)
_set_factors = instruction(2, 1, _emit_factors)
_store_rows = instruction(3, 4, _emit_store)


@compiled()
def _load(target, signal, feature, rows, peaks, place):
    """One sequence's rows, zeros after them up to `rows`, and the largest size of each feature in `peaks`."""
    length, H = signal.shape
    if feature + LANES <= H:
        _load_rows(target, signal, peaks, feature, place, H, length)
    else:
        peaks[place : place + LANES] = 0.0
        target[: length * LANES] = 0.0
        for lane in range(H - feature):
            peak = abs(signal[0, feature + lane])
            for t in range(length):
                value = signal[t, feature + lane]
                target[t * LANES + lane] = value
                # Once it is NaN it stays NaN.
                if abs(value) > peak or value != value:
                    peak = abs(value)
            peaks[place + lane] = peak
    target[length * LANES : rows * LANES] = 0.0


@compiled()
def _store(source, signal, feature, factors, place):
    length, H = signal.shape
    if feature + LANES <= H:
        _store_rows(signal, source, factors, feature, place, H, length)
    else:
        for t in range(length):
            for lane in range(H - feature):
                signal[t, feature + lane] = source[t * LANES + lane] * factors[place + lane]


@compiled()
def _all_finite(peaks, place):
    finite = True
    for lane in range(place, place + LANES):
        finite = finite and math.isfinite(peaks[lane])
    return finite


@compiled()
def load_pair(re, im, x, b, feature, rows, scale, back):
    """Load sequence b and, if they may share, the one after it; returns how many, and fills their factors."""
    _load(re, x[b], feature, rows, back, 0)
    count = 1
    if b + 1 < x.shape[0] and _all_finite(back, 0):
        _load(im, x[b + 1], feature, rows, back, LANES)
        count = 2 if _all_finite(back, LANES) else 1
    if count == 1:
        im[: rows * LANES] = 0.0
        back[LANES:] = 0.0
    _set_factors(scale, back, 0)
    _set_factors(scale, back, LANES)
    return count


@compiled()
def load_same(re, im, x, b, count, feature, rows, peaks):
    """Load as many sequences from b on as `load_pair` found fit to share."""
    _load(re, x[b], feature, rows, peaks, 0)
    if count == 2:
        _load(im, x[b + 1], feature, rows, peaks, LANES)
    else:
        im[: rows * LANES] = 0.0


@compiled()
def store_pair(re, im, y, b, count, feature, back):
    """Write what `load_pair` loaded, in its own size."""
    _store(re, y[b], feature, back, 0)
    if count == 2:
        _store(im, y[b + 1], feature, back, LANES)
