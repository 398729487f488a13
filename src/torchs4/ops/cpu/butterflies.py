"""Small Fourier transforms on eight signals at once, written as vector instructions.

A row holds one sample of eight signals, real and imaginary parts in two arrays of one float type. A
butterfly takes r rows that lie `stride` apart and transforms them in place.

Forward butterflies multiply their outputs by twiddle factors, inverse ones their inputs by the conjugates,
so that inverse stages in the opposite order undo forward stages: no reordering of samples is ever needed.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from torchs4.ops.cpu.vectors import LANES, Value, instruction, load_scalar, load_vector, splat, store_vector


class _Complex:
    """Eight complex numbers in the program that is being written."""

    def __init__(self, real: Value, imaginary: Value) -> None:
        self.real = real
        self.imaginary = imaginary

    def __add__(self, other: _Complex) -> _Complex:
        return _Complex(self.real + other.real, self.imaginary + other.imaginary)

    def __sub__(self, other: _Complex) -> _Complex:
        return _Complex(self.real - other.real, self.imaginary - other.imaginary)

    def __mul__(self, other: _Complex | float) -> _Complex:
        if not isinstance(other, _Complex):
            return _Complex(self.real * other, self.imaginary * other)
        return _Complex(
            self.real * other.real - self.imaginary * other.imaginary,
            self.real * other.imaginary + self.imaginary * other.real,
        )

    def conjugate(self) -> _Complex:
        return _Complex(self.real, -self.imaginary)

    def turned(self, sign: int) -> _Complex:
        """Times sign·i."""
        if sign > 0:
            return _Complex(-self.imaginary, self.real)
        return _Complex(self.imaginary, -self.real)


def _dft(x: list[_Complex], sign: int) -> list[_Complex]:
    """Σ_q x_q exp(sign·2πi·pq/r): -1 is the forward transform, +1 the inverse without its 1/r."""
    match len(x):
        case 2:
            return [x[0] + x[1], x[0] - x[1]]
        case 3:
            outer = x[1] + x[2]
            middle = x[0] + outer * -0.5
            turned = ((x[1] - x[2]) * math.sin(math.pi / 3)).turned(sign)
            return [x[0] + outer, middle + turned, middle - turned]
        case 4:
            even, odd = _dft([x[0], x[2]], sign), _dft([x[1], x[3]], sign)
            turned = odd[1].turned(sign)
            return [even[0] + odd[0], even[1] + turned, even[0] - odd[0], even[1] - turned]
        case 5:
            near, far = x[1] + x[4], x[2] + x[3]
            near_gap, far_gap = x[1] - x[4], x[2] - x[3]
            c1, c2 = math.cos(2 * math.pi / 5), math.cos(4 * math.pi / 5)
            s1, s2 = math.sin(2 * math.pi / 5), math.sin(4 * math.pi / 5)
            first, second = x[0] + near * c1 + far * c2, x[0] + near * c2 + far * c1
            first_turn = (near_gap * s1 + far_gap * s2).turned(sign)
            second_turn = (near_gap * s2 - far_gap * s1).turned(sign)
            return [
                x[0] + near + far,
                first + first_turn,
                second + second_turn,
                second - second_turn,
                first - first_turn,
            ]
        case 8:
            even, odd = _dft(x[0::2], sign), _dft(x[1::2], sign)
            half = math.sqrt(0.5)
            odd = [
                odd[0],
                (odd[1] + odd[1].turned(sign)) * half,
                odd[2].turned(sign),
                (odd[3].turned(sign) - odd[3]) * half,
            ]
            return [e + o for e, o in zip(even, odd, strict=True)] + [
                e - o for e, o in zip(even, odd, strict=True)
            ]
    raise AssertionError(f"no butterfly of radix {len(x)}")


class _Rows:
    """Reads and writes rows of two arrays, at offsets counted in floats."""

    def __init__(self, builder: Any, element: Any, real: Any, imaginary: Any) -> None:
        self.builder = builder
        self.element = element
        self.real = real
        self.imaginary = imaginary

    def load(self, offset: Any) -> _Complex:
        real, imaginary = (
            load_vector(self.builder, self.element, array, offset) for array in (self.real, self.imaginary)
        )
        return _Complex(real, imaginary)

    def store(self, value: _Complex, offset: Any) -> None:
        store_vector(value.real, self.element, self.real, offset)
        store_vector(value.imaginary, self.element, self.imaginary, offset)


def _twiddles(builder: Any, element: Any, table: Any, offset: Any, count: int) -> list[_Complex]:
    parts = []
    for index in range(2 * count):
        place = builder.add(offset, ir.Constant(offset.type, index))
        parts.append(splat(builder, load_scalar(builder, element, table, place)))
    return [_Complex(parts[2 * i], parts[2 * i + 1]) for i in range(count)]


def _offsets(builder: Any, offset: Any, stride: Any, count: int) -> list[Any]:
    return [
        builder.add(offset, builder.mul(stride, ir.Constant(stride.type, index))) for index in range(count)
    ]


def forward_butterfly(radix: int, twiddled: bool) -> Any:
    """(re, im, table, offset, stride, place): transform, then twiddle."""

    def emit(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
        rows = _Rows(builder, element, *arrays[:2])
        offsets = _offsets(builder, integers[0], integers[1], radix)
        y = _dft([rows.load(o) for o in offsets], -1)
        if twiddled:
            y = _twiddled(y, _twiddles(builder, element, arrays[2], integers[2], radix - 1))
        for value, o in zip(y, offsets, strict=True):
            rows.store(value, o)

    return instruction(3, 3, emit)


def opening_butterfly(radix: int) -> Any:
    """(re, im, table, scale, offset, stride, place): scale both parts, transform, twiddle.

    The second half of the rows counts as zero. `scale` has eight factors for each part.
    """

    def emit(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
        rows = _Rows(builder, element, *arrays[:2])
        scales = [
            load_vector(builder, element, arrays[3], ir.Constant(integers[0].type, place))
            for place in (0, LANES)
        ]
        offsets = _offsets(builder, integers[0], integers[1], radix)
        x = [rows.load(o) for o in offsets[: radix // 2]]
        x = [_Complex(value.real * scales[0], value.imaginary * scales[1]) for value in x]
        factors = _twiddles(builder, element, arrays[2], integers[2], radix - 1)
        for value, o in zip(_twiddled(_half_empty_dft(x), factors), offsets, strict=True):
            rows.store(value, o)

    return instruction(4, 3, emit)


def _twiddled(y: list[_Complex], factors: list[_Complex]) -> list[_Complex]:
    return [y[0]] + [value * factor for value, factor in zip(y[1:], factors, strict=True)]


def _half_empty_dft(x: list[_Complex]) -> list[_Complex]:
    """The forward transform of x followed by as many zeros: even outputs, and odd ones after a turn."""
    count = len(x)
    turned = []
    for q, value in enumerate(x):
        angle = -math.pi * q / count
        turned.append(_rotate(value, math.cos(angle), math.sin(angle)))
    even, odd = _dft(x, -1), _dft(turned, -1)
    return [value for pair in zip(even, odd, strict=True) for value in pair]


def _rotate(value: _Complex, cosine: float, sine: float) -> _Complex:
    if abs(sine) < 1e-12:
        return value
    if abs(cosine) < 1e-12:
        return value.turned(1 if sine > 0 else -1)
    return _Complex(
        value.real * cosine - value.imaginary * sine, value.real * sine + value.imaginary * cosine
    )


def inverse_butterfly(radix: int, kept: int, twiddled: bool) -> Any:
    """(re, im, table, offset, stride, place): twiddle back, then transform. Only `kept` rows are written."""

    def emit(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
        rows = _Rows(builder, element, *arrays[:2])
        offsets = _offsets(builder, integers[0], integers[1], radix)
        y = [rows.load(o) for o in offsets]
        if twiddled:
            factors = _twiddles(builder, element, arrays[2], integers[2], radix - 1)
            y = [y[0]] + [value * factor.conjugate() for value, factor in zip(y[1:], factors, strict=True)]
        for value, o in zip(_dft(y, 1)[:kept], offsets, strict=False):
            rows.store(value, o)

    return instruction(3, 3, emit)


def filter_butterfly(radix: int) -> Any:
    """(re, im, filter re, filter im, offset): last forward stage, times the filter, first inverse stage."""

    def emit(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
        rows, response = _Rows(builder, element, *arrays[:2]), _Rows(builder, element, *arrays[2:])
        offsets = _offsets(builder, integers[0], ir.Constant(integers[0].type, LANES), radix)
        y = _dft([rows.load(o) for o in offsets], -1)
        y = [value * response.load(o) for value, o in zip(y, offsets, strict=True)]
        for value, o in zip(_dft(y, 1), offsets, strict=True):
            rows.store(value, o)

    return instruction(4, 1, emit)


def adjoint_butterfly(radix: int) -> Any:
    """(u re, u im, g re, g im, filter re, filter im, sum re, sum im, offset): what the backward pass needs.

    The last forward stage of both signals; conj(u)·g is added to the sums; g times the conjugate filter goes
    through the first inverse stage.
    """

    def emit(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
        signal, grad, response, total = (_Rows(builder, element, *arrays[i : i + 2]) for i in range(0, 8, 2))
        offsets = _offsets(builder, integers[0], ir.Constant(integers[0].type, LANES), radix)
        u = _dft([signal.load(o) for o in offsets], -1)
        g = _dft([grad.load(o) for o in offsets], -1)
        for u_value, g_value, o in zip(u, g, offsets, strict=True):
            total.store(total.load(o) + u_value.conjugate() * g_value, o)
        g = [value * response.load(o).conjugate() for value, o in zip(g, offsets, strict=True)]
        for value, o in zip(_dft(g, 1), offsets, strict=True):
            grad.store(value, o)

    return instruction(8, 1, emit)
