"""Imported weights do what the authors' code does: by its numbers and by its documented formulas."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from torchs4 import S4D, Backbone, S4Block, load_model, ops
from torchs4.inference import Stream, export_onnx
from torchs4.interop import from_authors

# Largest errors, over the largest value where that exceeds 1.
# Both sides compute in float32; measured: blocks 6.1e-7, their kernels 2.5e-7, the network 2.3e-7.
FLOAT32 = 2e-6
# The same formulas on both sides in float64; measured: 1e-13, with and without a C̃ to convert.
FLOAT64 = 1e-11
# At rate 2 the authors' S4 keeps the C̃ of rate 1: it holds C (I - Ā(Δ)^L) for C (I - Ā(2Δ)^(L/2)). The two
# are equal in continuous time only; measured: 1.4e-4. S4D has no C̃ and stays within FLOAT32.
LENGTH_CORRECTION_AT_RATE_2 = 3e-4
# Convolution, chunks and steps of one module in float32; measured: 1.2e-6.
VIEWS = 3e-6

REFERENCE = Path(__file__).parents[2] / "shared" / "reference"

needs_reference = pytest.mark.skipif(
    not REFERENCE.is_dir(),
    reason="the numbers computed with the authors' code are not beside this repository",
)


# --- the authors' numbers ----------------------------------------------------------------------------


def load_reference(name):
    with np.load(REFERENCE / f"authors_{name}.npz") as file:
        arrays = dict(file)
    weights = {key.removeprefix("weights/"): arrays[key] for key in arrays if key.startswith("weights/")}
    return weights, {key: torch.tensor(arrays[key]) for key in arrays if not key.startswith("weights/")}


def assert_close(actual, expected, tolerance):
    expected = torch.as_tensor(expected)
    assert actual.shape == expected.shape
    error = (actual - expected).abs().max().item()
    assert error <= tolerance * max(1.0, expected.abs().max().item())


@needs_reference
@pytest.mark.parametrize("name", ["s4", "s4d"])
@torch.no_grad()
def test_block_matches_the_authors_numbers(name):
    weights, expected = load_reference(name)
    module = from_authors(weights)
    assert_close(module.layer.kernel(100), expected["kernel"], FLOAT32)
    assert_close(module(expected["input"]), expected["output"], FLOAT32)


@needs_reference
@pytest.mark.parametrize(("name", "tolerance"), [("s4", LENGTH_CORRECTION_AT_RATE_2), ("s4d", FLOAT32)])
@torch.no_grad()
def test_rate_matches_the_authors_numbers(name, tolerance):
    weights, expected = load_reference(name)
    module = from_authors(weights)
    # Built for 100 samples, that layer cuts its kernel after 50 at rate 2: only 50 outputs are whole.
    x, y = expected["input"], expected["output_rate_2"]
    assert_close(module(x[:, :50], rate=2.0), y[:, :50], tolerance)
    cut = module.layer.kernel(100, rate=2.0).where(torch.arange(100) < 50, 0)
    from_layer = ops.long_convolution(x, cut)[:, :, 0] + module.layer.D * x
    mixed = torch.nn.functional.glu(module.mixing(torch.nn.functional.gelu(from_layer)))
    assert_close(mixed, y, tolerance)


@needs_reference
@torch.no_grad()
def test_network_matches_the_authors_numbers():
    weights, expected = load_reference("network")
    module = from_authors(weights, dt_transform="softplus")
    assert_close(module(expected["input"]), expected["output"], FLOAT32)
    assert (module(expected["input"]) - from_authors(weights)(expected["input"])).abs().max() > 1e-3


@needs_reference
@pytest.mark.parametrize(("name", "transform"), [("s4", "exp"), ("s4d", "exp"), ("network", "softplus")])
def test_authors_weights_can_stream(name, transform):
    weights, expected = load_reference(name)
    assert_views_agree(from_authors(weights, dt_transform=transform), expected["input"])


# --- the documented formulas, written out densely in complex128 ---------------------------------------


def random_block(rng, *, rank=1, features=4, modes=3, copies=None, channels=1, bidirectional=False):
    """Weights of a block in the authors' layout with a plain C; rank 0 is S4D."""
    copies = features if copies is None else copies
    rows = channels * (2 if bidirectional else 1)
    weights = {
        "layer.D": rng.normal(size=(channels, features)),
        "layer.kernel.A_real": rng.normal(-0.7, 0.3, size=(copies, modes)),
        "layer.kernel.A_imag": rng.uniform(0.5, 12, size=(copies, modes)),
        "layer.kernel.B": rng.normal(size=(1, copies, modes, 2)),
        "layer.kernel.C": rng.normal(size=(rows, features, modes, 2)),
        "layer.kernel.inv_dt": rng.uniform(-4, -1.5, size=(features, 1)),
        "output_linear.0.weight": rng.normal(size=(2 * features, channels * features)),
        "output_linear.0.bias": rng.normal(size=(2 * features,)),
    }
    if rank:
        weights["layer.kernel.P"] = rng.normal(size=(rank, copies, modes, 2))
        weights["layer.kernel.l_kernel"] = np.array(0)
    return weights


def random_norm(rng, features=4, *, kind):
    if kind == "scalar":
        return {"norm.m": rng.normal(size=1), "norm.s": rng.uniform(0.5, 2, size=1)}
    weights = {"norm.weight": rng.normal(1, 0.2, size=features), "norm.bias": rng.normal(size=features)}
    if kind == "batch":
        weights["norm.running_mean"] = rng.normal(size=features)
        weights["norm.running_var"] = rng.uniform(0.5, 2, size=features)
    return weights


def below(prefix, weights):
    return {prefix + key: value for key, value in weights.items()}


def whole(pairs):
    """Both members of every conjugate pair, of which one is stored as real and imaginary part."""
    half = pairs[..., 0] + 1j * pairs[..., 1]
    return np.concatenate([half, half.conj()], axis=-1)


def discrete_system(weights, feature, step_size):
    """Ā, B̄ and the rows of C of one feature."""
    kernel = {key.removeprefix("layer.kernel."): value for key, value in weights.items()}
    copy = feature % len(kernel["A_real"])
    modes = whole(np.stack([-np.exp(kernel["A_real"][copy]), -kernel["A_imag"][copy]], axis=-1))
    B, C = whole(kernel["B"][0, copy]), whole(kernel["C"][:, feature])
    if "P" not in kernel:
        decay = np.exp(step_size * modes)
        return np.diag(decay), (decay - 1) / modes * B, C
    A, identity = np.diag(modes), np.eye(len(modes))
    for column in whole(kernel["P"][:, copy]):
        A = A - np.outer(column, column.conj())
    solve = np.linalg.inv(identity - step_size / 2 * A)
    return solve @ (identity + step_size / 2 * A), solve @ B * step_size, C


def step_sizes(weights, transform, rate=1.0):
    stored = weights["layer.kernel.inv_dt"][:, 0]
    return rate * (np.exp(stored) if transform == "exp" else np.log1p(np.exp(stored)))


def tied_to_length(weights, length, transform="exp"):
    """The same block as it is stored once its kernel had that length: with C̃ = C (I - Ā^L) for C."""
    modes = weights["layer.kernel.A_real"].shape[-1]
    tied = np.array(weights["layer.kernel.C"])
    for feature, step_size in enumerate(step_sizes(weights, transform)):
        A_bar, _, C = discrete_system(weights, feature, step_size)
        C = (C - C @ np.linalg.matrix_power(A_bar, length))[:, :modes]
        tied[:, feature] = np.stack([C.real, C.imag], axis=-1)
    return weights | {"layer.kernel.C": tied, "layer.kernel.l_kernel": np.array(length)}


def expected_block(weights, u, transform="exp", rate=1.0):
    """The block by its recurrence, and backwards by y[t] += Σ_{j≥0} k₁[j] u[t+1+j]."""
    batch, length, features = u.shape
    channels = len(weights["layer.D"])
    y = u[:, :, None] * weights["layer.D"]
    for feature, step_size in enumerate(step_sizes(weights, transform, rate)):
        A_bar, B_bar, C = discrete_system(weights, feature, step_size)
        state = np.zeros((batch, len(B_bar)), dtype=np.complex128)
        for t in range(length):
            state = state @ A_bar.T + u[:, t, feature, None] * B_bar
            y[:, t, :, feature] += (state @ C[:channels].T).real
        column = B_bar
        for j in range(length - 1 if len(C) > channels else 0):
            k1 = (C[channels:] @ column).real
            y[:, : length - 1 - j, :, feature] += u[:, 1 + j :, feature, None] * k1
            column = A_bar @ column
    y = y.reshape(batch, length, channels * features)
    y = y * (1 + np.vectorize(math.erf)(y / math.sqrt(2))) / 2
    y = y @ weights["output_linear.0.weight"].T + weights["output_linear.0.bias"]
    return y[..., :features] / (1 + np.exp(-y[..., features:]))


def expected_norm(weights, x):
    if "norm.m" in weights:
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).sum(axis=-1, keepdims=True) / x.shape[-1])
        return weights["norm.s"] / deviation * (centred + weights["norm.m"])
    mean = weights.get("norm.running_mean", x.mean(axis=-1, keepdims=True))
    variance = weights.get("norm.running_var", x.var(axis=-1, keepdims=True))
    return (x - mean) / np.sqrt(variance + 1e-5) * weights["norm.weight"] + weights["norm.bias"]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


BLOCKS = {
    "S4": {},
    "S4, one copy": {"copies": 1},
    "S4, two copies": {"copies": 2},
    "S4, rank 2": {"rank": 2},
    "S4, 64 states": {"modes": 32},
    "S4, bidirectional": {"bidirectional": True},
    "S4, two channels": {"channels": 2},
    "S4, two channels, bidirectional": {"channels": 2, "bidirectional": True},
    "S4D": {"rank": 0},
    "S4D, one copy": {"rank": 0, "copies": 1},
    "S4D, two copies": {"rank": 0, "copies": 2},
    "S4D, bidirectional": {"rank": 0, "bidirectional": True},
}


@pytest.mark.parametrize("transform", ["exp", "softplus"])
@pytest.mark.parametrize("rate", [1.0, 2.0])
@pytest.mark.parametrize("options", BLOCKS.values(), ids=BLOCKS.keys())
@torch.no_grad()
def test_block_matches_the_documented_formulas(rng, options, rate, transform):
    weights, u = random_block(rng, **options), rng.normal(size=(2, 33, 4))
    module = from_authors(weights, dt_transform=transform)
    assert isinstance(module, S4Block)
    assert isinstance(module.layer, S4D) == ("layer.kernel.P" not in weights)
    expected = expected_block(weights, u, transform, rate)
    assert_close(module(torch.tensor(u), rate=rate), expected, FLOAT64)


@pytest.mark.parametrize("transform", ["exp", "softplus"])
@pytest.mark.parametrize("length", [1, 20, 1024])
@pytest.mark.parametrize("name", [name for name in BLOCKS if not name.startswith("S4D")])
@torch.no_grad()
def test_stored_length_is_undone(rng, name, length, transform):
    weights, u = random_block(rng, **BLOCKS[name]), rng.normal(size=(2, 33, 4))
    module = from_authors(tied_to_length(weights, length, transform), dt_transform=transform)
    assert_close(module(torch.tensor(u)), expected_block(weights, u, transform), FLOAT64)


@torch.no_grad()
def test_old_names_mean_the_same(rng):
    weights, u = random_block(rng), rng.normal(size=(2, 33, 4))
    stored = tied_to_length(weights, 33)
    version_3 = dict(stored)
    version_3["layer.kernel.log_dt"] = version_3.pop("layer.kernel.inv_dt")
    version_3["layer.kernel.A_imag"] = -version_3["layer.kernel.A_imag"]
    assert_close(from_authors(version_3)(torch.tensor(u)), expected_block(weights, u), FLOAT64)
    with pytest.raises(ValueError, match=r"log_dt .* is a logarithm"):
        from_authors(version_3, dt_transform="softplus")

    names = {"A_real": "inv_w_real", "A_imag": "w_imag", "l_kernel": "L"}
    nested = {}
    for key, value in version_3.items():
        above, _, name = key.rpartition(".")
        above = above.replace("layer.kernel", "kernel.kernel").replace("layer", "")
        key = f"{above}.{names.get(name, name)}" if above else name
        nested[key] = value[:, 0] if name == "log_dt" else value
    assert {"D", "kernel.kernel.L", "kernel.kernel.w_imag", "output_linear.0.weight"} <= set(nested)
    assert_close(from_authors(nested)(torch.tensor(u)), expected_block(weights, u), FLOAT64)


@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])
@pytest.mark.parametrize("kind", ["batch", "layer", "scalar"])
@pytest.mark.parametrize("name", ["S4", "S4D", "S4, bidirectional"])
@torch.no_grad()
def test_backbone_matches_the_documented_formulas(rng, name, kind, pre_norm):
    u = rng.normal(size=(2, 33, 4))
    network, x = {}, u
    for index in range(3):
        block, norm = random_block(rng, **BLOCKS[name]), random_norm(rng, kind=kind)
        stored = tied_to_length(block, 33) if "layer.kernel.P" in block else block
        network |= below(f"layers.{index}.layer.", stored) | below(f"layers.{index}.norm.", norm)
        if pre_norm:
            x = x + expected_block(block, expected_norm(norm, x))
        else:
            x = expected_norm(norm, x + expected_block(block, x))
    if pre_norm:
        norm = random_norm(rng, kind=kind)
        network |= below("norm.", norm)
        x = expected_norm(norm, x)
    training = below("model.", network) | {"encoder.weight": np.ones(3), "decoder.0.bias": np.ones(3)}
    for state_dict in (network, training):
        module = from_authors(state_dict)
        assert isinstance(module, Backbone)
        assert_close(module(torch.tensor(u)), x, FLOAT64)


def scalar_norm_backbone(rng, layers=2):
    network = below("norm.", random_norm(rng, kind="scalar"))
    for index in range(layers):
        network |= below(f"layers.{index}.layer.", random_block(rng))
        network |= below(f"layers.{index}.norm.", random_norm(rng, kind="scalar"))
    return network


def test_a_backbone_with_scalar_layer_norms_streams_and_ignores_padding(rng):
    module = from_authors(to_float32(scalar_norm_backbone(rng)))
    x = torch.tensor(rng.normal(size=(2, 33, 4)), dtype=torch.float32)
    assert_views_agree(module, x)
    padded = torch.cat([x, torch.zeros(2, 7, 4)], dim=1).requires_grad_()
    y = module(padded, lengths=torch.tensor([33, 33]))
    assert_close(y[:, :33], module(x).detach(), FLOAT32)
    y[:, :33].sum().backward()
    assert padded.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("kind", ["batch", "scalar"])
def test_an_imported_backbone_is_saved_streamed_and_exported_like_any_model(rng, kind, tmp_path):
    network = below("norm.", random_norm(rng, kind=kind))
    for index in range(2):
        network |= below(f"layers.{index}.layer.", random_block(rng))
        network |= below(f"layers.{index}.norm.", random_norm(rng, kind=kind))
    module = from_authors(to_float32(network))
    module.save_pretrained(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert isinstance(again, Backbone)
    x = torch.tensor(rng.normal(size=(100, 4)), dtype=torch.float32)
    with torch.no_grad():
        whole = module(x[None])[0]
        assert torch.equal(again(x[None])[0], whole)
    stream = Stream(again)
    pushed = torch.cat([stream.push(x[:1]), stream.push(x[1:50])])
    stream.save(tmp_path / "state")
    pushed = torch.cat([pushed, Stream.load(tmp_path / "state", module).push(x[50:])])
    assert_close(pushed, whole, VIEWS)

    folder = export_onnx(again, tmp_path / "exported", chunk=20)
    session = pytest.importorskip("onnxruntime").InferenceSession(folder / "chunk.onnx")
    state = {f"state.blocks.{index}": np.zeros((1, 4, 6), np.float32) for index in range(2)}
    predictions = []
    for piece in x.split(20):
        prediction, *new = session.run(None, {"samples": piece[None].numpy(), **state})
        state = dict(zip(state, new, strict=True))
        predictions.append(prediction[0])
    assert_close(torch.tensor(np.concatenate(predictions)), whole, VIEWS)


def test_a_backbone_gives_what_it_takes():
    with pytest.raises(ValueError, match="must be the same"):
        Backbone(input_features=3, output_size=4, features=4, pooling="none")
    with pytest.raises(ValueError, match="no encoder"):
        Backbone(input_features=4, output_size=4, features=4, pooling="none", stem=(2,))


def test_numbers_of_a_scalar_layer_norm_may_have_no_axis(rng):
    network = scalar_norm_backbone(rng)
    bare = {key: value[0] if key.endswith((".m", ".s")) else value for key, value in network.items()}
    x = torch.tensor(rng.normal(size=(2, 33, 4)))
    with torch.no_grad():
        assert torch.equal(from_authors(bare)(x), from_authors(network)(x))
    with pytest.raises(ValueError, match=r"layers.1.norm.norm.s has shape \(4,\); expected \(1\)"):
        from_authors(network | {"layers.1.norm.norm.s": np.ones(4)})
    with pytest.raises(ValueError, match=r"layers.1.norm.norm.s is missing; beside it there is .*norm.m"):
        from_authors({key: value for key, value in network.items() if key != "layers.1.norm.norm.s"})


def to_float32(weights):
    return {key: value.astype(np.float32) if value.ndim else value for key, value in weights.items()}


def assert_views_agree(module, x):
    with torch.no_grad():
        whole_sequence = module(x)
        first, state = module.prefill(x[:, :13])
        second, _ = module.prefill(x[:, 13:], state)
        state, steps = module.initial_state(x.shape[0]), []
        for x_t in x.unbind(1):
            y_t, state = module.step(x_t, state)
            steps.append(y_t)
    assert_close(torch.cat([first, second], dim=1), whole_sequence, VIEWS)
    assert_close(torch.stack(steps, dim=1), whole_sequence, VIEWS)


@pytest.mark.parametrize("name", [name for name in BLOCKS if "bidirectional" not in name])
def test_imported_block_can_stream(rng, name):
    weights = random_block(rng, **BLOCKS[name])
    if "layer.kernel.P" in weights:
        weights = tied_to_length(weights, 64)
    x = torch.tensor(rng.normal(size=(2, 33, 4)), dtype=torch.float32)
    assert_views_agree(from_authors(to_float32(weights)), x)


@torch.no_grad()
def test_module_is_ready_to_use_and_independent_of_what_it_was_made_from(rng):
    weights = {key: torch.tensor(value) for key, value in to_float32(random_block(rng)).items()}
    module = from_authors(weights)
    assert not module.training
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    x = torch.tensor(rng.normal(size=(2, 33, 4)), dtype=torch.float32)
    before = module(x)
    for value in weights.values():
        value.zero_()
    assert torch.equal(module(x), before)


# --- mistakes ----------------------------------------------------------------------------------------


def without(weights, key):
    return {name: value for name, value in weights.items() if name != key}


def test_wrong_step_size_transform_is_named(rng):
    with pytest.raises(ValueError, match="dt_transform is 'log'; choose one of 'exp', 'softplus'"):
        from_authors(random_block(rng), dt_transform="log")


@pytest.mark.parametrize(
    "key", ["layer.D", "layer.kernel.A_imag", "layer.kernel.l_kernel", "output_linear.0.bias"]
)
def test_missing_weights_are_named(rng, key):
    with pytest.raises(ValueError, match=f"{key} is missing"):
        from_authors(without(random_block(rng), key))


def test_missing_norm_names_what_is_there_instead(rng):
    network = below("layers.0.layer.", random_block(rng))
    network |= {"layers.0.norm.norm.scale": np.ones(4)}
    with pytest.raises(ValueError, match=r"norm.weight is missing; beside it there is .*norm.norm.scale"):
        from_authors(network)


@pytest.mark.parametrize("state_dict", [{}, {"fc.weight": np.ones(3)}, {"encoder.weight": np.ones(3)}])
def test_unknown_layout_lists_its_names(state_dict):
    with pytest.raises(ValueError, match=f"the names are {', '.join(state_dict) or 'nothing'}; expected"):
        from_authors(state_dict)


def test_training_checkpoint_is_told_where_its_weights_are(rng):
    with pytest.raises(ValueError, match=r'state_dict is a dict; .* pass checkpoint\["state_dict"\]'):
        from_authors({"epoch": 3, "state_dict": random_block(rng)})


def test_weights_without_a_place_are_refused(rng):
    with pytest.raises(ValueError, match=r"hold input_gate.weight, for which torchs4 has no place"):
        from_authors(random_block(rng) | {"input_gate.weight": np.ones((4, 4))})


@pytest.mark.parametrize(
    ("key", "shape", "message"),
    [
        ("layer.kernel.B", (1, 4, 2, 2), r"B has shape \(1, 4, 2, 2\); expected \(1, 4, 3, 2\)"),
        ("layer.kernel.inv_dt", (4, 3), r"inv_dt has shape \(4, 3\); expected \(4, 1\)"),
        ("layer.kernel.A_real", (3, 3), "A_real has 3 copies for 4 features"),
        ("layer.D", (3, 4), "C has 1 rows and layer.D has 3"),
        ("output_linear.0.weight", (4, 4), r"weight has shape \(4, 4\); expected \(8, 4\)"),
    ],
)
def test_inconsistent_shapes_are_named(rng, key, shape, message):
    with pytest.raises(ValueError, match=message):
        from_authors(random_block(rng) | {key: np.ones(shape)})


def test_unequal_layers_are_refused(rng):
    network = {}
    for index, copies in enumerate((4, 1)):
        network |= below(f"layers.{index}.layer.", random_block(rng, copies=copies))
        network |= below(f"layers.{index}.norm.", random_norm(rng, kind="layer"))
    with pytest.raises(ValueError, match=r"Layer 1 has 4 features .* a backbone has equal blocks"):
        from_authors(network)
