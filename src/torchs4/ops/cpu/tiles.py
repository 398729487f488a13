"""Small real matrix products in tiles of two by four: fewer loads than multiplications."""

from __future__ import annotations

from torchs4.ops.cpu.compiling import compiled


@compiled()
def add_products(target, coefficients, rows, start, stop):
    """Target[j] += Σ coefficients[j, i] rows[i] for i from start to stop; even counts of j, fours of i."""
    for j in range(0, target.shape[0], 2):
        upper, lower = target[j], target[j + 1]
        for i in range(start, stop, 4):
            u0, u1 = coefficients[j, i], coefficients[j, i + 1]
            u2, u3 = coefficients[j, i + 2], coefficients[j, i + 3]
            l0, l1 = coefficients[j + 1, i], coefficients[j + 1, i + 1]
            l2, l3 = coefficients[j + 1, i + 2], coefficients[j + 1, i + 3]
            r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
            for k in range(target.shape[1]):
                upper[k] += u0 * r0[k] + u1 * r1[k] + u2 * r2[k] + u3 * r3[k]
                lower[k] += l0 * r0[k] + l1 * r1[k] + l2 * r2[k] + l3 * r3[k]


@compiled()
def add_dots(target, left, rows, start, stop):
    """Target[j, i] += left[j]·rows[i] for i from start to stop; even counts of j, fours of i."""
    for j in range(0, left.shape[0], 2):
        g, f = left[j], left[j + 1]
        for i in range(start, stop, 4):
            r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
            g0, g1, g2, g3 = 0.0, 0.0, 0.0, 0.0
            f0, f1, f2, f3 = 0.0, 0.0, 0.0, 0.0
            for k in range(left.shape[1]):
                g0 += g[k] * r0[k]
                g1 += g[k] * r1[k]
                g2 += g[k] * r2[k]
                g3 += g[k] * r3[k]
                f0 += f[k] * r0[k]
                f1 += f[k] * r1[k]
                f2 += f[k] * r2[k]
                f3 += f[k] * r3[k]
            target[j, i] += g0
            target[j, i + 1] += g1
            target[j, i + 2] += g2
            target[j, i + 3] += g3
            target[j + 1, i] += f0
            target[j + 1, i + 1] += f1
            target[j + 1, i + 2] += f2
            target[j + 1, i + 3] += f3
