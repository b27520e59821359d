"""Block formats against the gguf package's own dequantisers."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.quants import dequantize as reference

from saragossa.weights.convert import gguf_blocks as blocks
from saragossa.weights.convert.floats import from_float32
from saragossa.weights.convert.quantize import Quantized
from tiny_gguf import FACTORS, Kind, random_blocks


def values(q: Quantized) -> np.ndarray:
    """What a kernel computes from codes, scales and biases, in float32."""
    groups = q.codes.reshape(len(q.codes), -1, blocks.GROUP_SIZE).astype(np.float32)
    return (groups * q.scales[..., None] + q.biases[..., None]).reshape(q.codes.shape)


@pytest.mark.parametrize("kind", list(blocks.AFFINE))
def test_unpacking_equals_the_dequantiser(kind: Kind) -> None:
    rows = random_blocks(kind, 8, 512)
    q = blocks.unpack(rows, kind)
    assert q.codes.max() < 1 << blocks.AFFINE[kind].bits
    assert np.array_equal(values(q), reference(rows, kind))


@pytest.mark.parametrize("kind", [kind for kind, form in blocks.AFFINE.items() if form.exact])
def test_exact_kinds_keep_every_bit_in_f16(kind: Kind) -> None:
    rows = random_blocks(kind, 8, 512)
    q = blocks.unpack(rows, kind)
    assert blocks.scale_dtype(rows, kind) == "F16"
    for part in (q.scales, q.biases):
        assert np.array_equal(from_float32(part, "F16").astype(np.float32), part)


@pytest.mark.parametrize("kind", [Kind.Q4_K, Kind.Q5_K])
def test_k_quants_lose_only_the_rounding_of_their_scales(kind: Kind) -> None:
    """Half an f16 ulp of each scale and bias (2^-12 of its binade), times the largest code."""
    rows = random_blocks(kind, 16, 1024)
    q = blocks.unpack(rows, kind)
    stored = Quantized(
        q.codes,
        from_float32(q.scales, "F16").astype(np.float32),
        from_float32(q.biases, "F16").astype(np.float32),
    )
    exact = reference(rows, kind)
    error = np.abs(values(stored) - exact)
    assert error.max() > 0
    top = (1 << (4 if kind == Kind.Q4_K else 5)) - 1
    bound = (np.abs(q.scales) * top + np.abs(q.biases)) * 2.0**-11 + 2.0**-25 * (top + 1)
    assert (error.reshape(*q.scales.shape, -1) <= bound[..., None]).all()


@pytest.mark.parametrize("kind", blocks.SUPPORTED)
def test_dequantising_equals_the_reference(kind: Kind) -> None:
    if kind in FACTORS:
        rows = random_blocks(kind, 4, 512)
        assert np.array_equal(blocks.dequantize(rows, kind), reference(rows, kind))
        return
    floats = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    stored = from_float32(floats, blocks.FLOAT_KINDS[kind])
    rows = stored.view(np.uint8).reshape(4, -1)
    expected = reference(rows if kind == Kind.BF16 else stored, kind)
    assert np.array_equal(blocks.dequantize(rows, kind), expected)


@pytest.mark.parametrize(("kind", "limit"), [(Kind.Q4_0, 8188.0), (Kind.Q5_0, 4094.0), (Kind.Q8_0, 511.75)])
def test_biases_beyond_f16_take_f32(kind: Kind, limit: float) -> None:
    rows = random_blocks(kind, 1, 64)
    rows[0, :2] = np.array([limit], "<f2").view(np.uint8)
    assert blocks.scale_dtype(rows, kind) == "F16"
    rows[0, :2] = np.array([-limit * 1.01], "<f2").view(np.uint8)
    assert blocks.scale_dtype(rows, kind) == "F32"
    assert np.array_equal(values(blocks.unpack(rows, kind)), reference(rows, kind))


@pytest.mark.parametrize("kind", list(FACTORS))
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_scales_that_are_not_finite_are_seen(kind: Kind, bad: float) -> None:
    for at in FACTORS[kind]:
        rows = random_blocks(kind, 2, 256)
        rows[1, at : at + 2] = np.array([bad], "<f2").view(np.uint8)
        assert blocks.scale_dtype(rows, kind) is None
