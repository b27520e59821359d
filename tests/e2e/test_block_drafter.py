"""The block drafter (DFlash) against its published description in NumPy, on states of the model's layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import saragossa
import tiny_checkpoints as tiny
from e2e.test_family_goldens import floats
from saragossa import _core
from saragossa.engine.loading import Loaded, load
from saragossa.errors import ConfigError, WeightsError

PLACES = {
    "qwen3": Path(__file__).parents[1] / "golden" / "checkpoints" / "qwen3",
    "qwen3_5_text": Path(__file__).parents[1] / "golden" / "families" / "qwen3_5_text",
}
PROMPT = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(21)]
HEADS, KV_HEADS, HEAD_DIM, INNER, SIZE, MASK, THETA = 4, 2, 24, 44, 6, 276, 1e5


def write(folder: Path, target: str, **changes: Any) -> dict[str, Any]:
    """A drafter of two layers with random weights; the arrays of its tensors."""
    config = json.loads((PLACES[target] / "config.json").read_text())
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    taps = list(range(layers - 1))[-2:]
    rng = np.random.default_rng(8)
    shapes: dict[str, tuple[int, ...]] = {"fc": (hidden, len(taps) * hidden), "hidden_norm": (hidden,)}
    shapes["norm"] = (hidden,)
    for i in range(2):
        at = f"layers.{i}."
        shapes |= {at + "input_layernorm": (hidden,), at + "post_attention_layernorm": (hidden,)}
        shapes |= {at + "self_attn.q_norm": (HEAD_DIM,), at + "self_attn.k_norm": (HEAD_DIM,)}
        shapes |= {
            at + "self_attn.q_proj": (HEADS * HEAD_DIM, hidden),
            at + "self_attn.o_proj": (hidden, HEADS * HEAD_DIM),
        }
        shapes |= {at + f"self_attn.{part}_proj": (KV_HEADS * HEAD_DIM, hidden) for part in "kv"}
        shapes |= {at + f"mlp.{part}_proj": (INNER, hidden) for part in ("gate", "up")}
        shapes[at + "mlp.down_proj"] = (hidden, INNER)
    arrays = {
        name: (
            1 + 0.2 * rng.standard_normal(shape)
            if len(shape) == 1
            else rng.standard_normal(shape) / shape[1] ** 0.5
        )
        for name, shape in shapes.items()
    }
    own: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": INNER,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": config["vocab_size"],
        "rms_norm_eps": config["rms_norm_eps"],
        "max_position_embeddings": 512,
        "rope_theta": THETA,
        "block_size": SIZE,
        "num_target_layers": layers,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": taps},
        "dtype": "float32",
    } | changes
    stored = {f"{n}.weight": ("F32", a.shape, a.astype("<f4").tobytes()) for n, a in arrays.items()}
    tiny.write_model(folder, own, stored)
    return {n: a.astype(np.float32).astype(np.float64) for n, a in arrays.items()} | {"taps": taps}


def reference(w: dict[str, Any], target: str, states: Any, drawn: int, eps: float) -> Any:
    """Logits of the block's masks. states: [tokens, taps * hidden]."""
    tensors = floats(PLACES[target])
    embed = tensors["model.embed_tokens.weight"].astype(np.float64)
    head = tensors.get("lm_head.weight", embed).astype(np.float64)

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name]

    def rotate(x: Any, first: int) -> Any:
        angles = (first + np.arange(len(x)))[:, None] * THETA ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    context = norm(states @ w["fc"].T, "hidden_norm")
    count = len(context)
    x = embed[[drawn] + [MASK] * (SIZE - 1)]
    for i in range(2):
        at = f"layers.{i}."
        n = norm(x, at + "input_layernorm")
        both = np.concatenate([context, n])
        q, k, v = (
            (inputs @ w[f"{at}self_attn.{part}_proj"].T).reshape(len(inputs), -1, HEAD_DIM)
            for part, inputs in (("q", n), ("k", both), ("v", both))
        )
        q = rotate(norm(q, at + "self_attn.q_norm"), count)
        k = rotate(norm(k, at + "self_attn.k_norm"), 0)
        k, v = (np.repeat(part, HEADS // KV_HEADS, 1) for part in (k, v))
        scores = np.exp(np.einsum("qhd,khd->hqk", q, k) / HEAD_DIM**0.5)  # no row is hidden from another
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v)
        x = x + mixed.reshape(SIZE, -1) @ w[at + "self_attn.o_proj"].T
        n = norm(x, at + "post_attention_layernorm")
        gate, up = (n @ w[f"{at}mlp.{part}_proj"].T for part in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[at + "mlp.down_proj"].T
    return norm(x, "norm")[1:] @ head.T


def states_of(target: str, tokens: list[int], taps: list[int]) -> Any:
    """From the layers' traces, a token at a time."""
    model = load(PLACES[target], device="cpu", exact=True)
    core = _core.Session(model.model, 1, 512)
    rows = [core.hidden(0, [token])[taps].reshape(-1) for token in tokens]
    return np.asarray(rows, np.float64)


@pytest.fixture(scope="module", params=list(PLACES))
def drafted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Any, Loaded, Path]:
    folder = tmp_path_factory.mktemp("dflash") / request.param
    weights = write(folder, request.param)
    model = load(PLACES[request.param], device="cpu", exact=True, block_drafter=folder)
    return request.param, weights, model, folder


def test_logits_equal_the_description(drafted: tuple[str, Any, Loaded, Path]) -> None:
    """Behind a prompt in pieces, verifications that were half right, plain steps, and a rewind to a mark."""
    target, weights, model, _ = drafted
    core = _core.Session(model.model, 1, 512)
    tokens = list(PROMPT)
    eps = model.spec.decoder.norm_eps

    def check(what: str) -> None:
        states = states_of(target, tokens, weights["taps"])
        want = reference(weights, target, states, core.drawn(0)[0], eps)
        assert np.abs(core.block_logits(0, 5) - want).max() < 1e-4, what
        assert core.draft_by_block(0, 7) == want.argmax(-1).tolist(), what  # no more than the block has

    core.configure(0)
    core.prefill(0, PROMPT[:5], False)
    core.prefill(0, PROMPT[5:], True)
    check("prompt")
    core.mark(0)
    drawn = core.drawn(0)[0]
    plain = _core.Session(model.model, 1, 512)
    plain.prefill(0, PROMPT, True)
    truth = [plain.drawn(0)[0]]
    for _ in range(6):
        plain.step([0])
        truth.append(plain.drawn(0)[0])
    assert truth[0] == drawn
    assert len(core.verify(0, [truth[1], truth[2], 5, 6])) == 3
    tokens += truth[:3]
    check("verification")
    core.step([0])
    tokens.append(truth[3])
    check("step")
    core.rewind(0, len(PROMPT))
    del tokens[len(PROMPT) :]
    core.prefill(0, [9, 8], True)
    tokens += [9, 8]
    check("rewind")


def test_output_is_that_of_plain_decoding(drafted: tuple[str, Any, Loaded, Path]) -> None:
    target, _, _, folder = drafted
    plain = saragossa.LLM(PLACES[target], device="cpu", exact=True)
    llm = saragossa.LLM(PLACES[target], device="cpu", exact=True, draft_model=folder)
    for options in ({}, {"temperature": 1.2, "seed": 3, "top_logprobs": 2}):
        session = llm.session()
        chunks = list(llm.stream(PROMPT, session=session, max_tokens=40, ignore_eos=True, **options))
        want = plain.generate(PROMPT, max_tokens=40, ignore_eos=True, **options)
        assert [c.token_id for c in chunks] == want.token_ids
        assert session.stats.drafted >= 12


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    for i, (changes, message) in enumerate(
        (
            ({"hidden_size": 8}, "hidden_size is 8, the model that it is to draft for has"),
            ({"vocab_size": 11}, "vocab_size is 11"),
            ({"num_target_layers": 99}, "num_target_layers is 99"),
            ({"layer_types": ["sliding_attention"] * 2}, "only full_attention is supported"),
            (
                {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [0, 77]}},
                r"target_layer_ids is \[0, 77\]",
            ),
            ({"dflash_config": {"mask_token_id": 999, "target_layer_ids": [0]}}, "mask_token_id is 999"),
            (
                {"dflash_config": {"mask_token_id": 1, "selector_rank": 4}},
                "unknown key dflash_config.selector_rank",
            ),
        )
    ):
        write(tmp_path / str(i), "qwen3", **changes)
        with pytest.raises(ConfigError, match=message):
            saragossa.LLM(PLACES["qwen3"], device="cpu", draft_model=tmp_path / str(i))
    write(tmp_path / "short", "qwen3", num_hidden_layers=3)
    with pytest.raises(WeightsError, match=r"missing layers\.2"):
        saragossa.LLM(PLACES["qwen3"], device="cpu", draft_model=tmp_path / "short")
