"""Goldens of the families: prompts whose routers decide clearly, forms of a checkpoint, what each part moves.

Used by make_family_checkpoints.py, which names the requirements; built on make_oracles.py.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch
import transformers
from make_architectures import BOS, EOS, PAD
from make_families import FIRST_MEDIA_ID, Family
from make_oracles import (
    CANDIDATES,
    GREEDY_TOKENS,
    PROMPT_TOKENS,
    _continue_greedily,
    _fingerprints,
    _mlx_difference,
    _mlx_wrong_ids,
    dequantise,
    load_reference,
    reference_logits,
)
from mlx_lm.utils import load_model

ROUTER_MARGIN = 1e-3  # in the logits of a router: least distance of the last expert taken and the next
# Between float32 and float64 in transformers. A norm of a delta rule's output that happens to be near zero
# (often at the first token, where it is q.k times v) blows rounding up; such prompts test the order of sums,
# not the engine.
NOISE = 2e-5
LONG_FROM = 100  # logits kept of a long prompt: chunks of the delta rule are 64 tokens in transformers
_PLUS_ONE = re.compile(r"(input_layernorm|post_attention_layernorm|q_norm|k_norm|model\.norm)\.weight$")
_OTHER_TOWER = re.compile(r"visual|vision|audio|embed_vision|embed_audio")


def router_margins(model: Any, ids: Any) -> Any:
    """The least margin of any router on each sequence [batch]; infinite without routers."""
    ids = np.asarray(ids)
    least = np.full(len(ids), np.inf)
    config = model.config.get_text_config()
    top = getattr(config, "top_k_experts", None) or getattr(config, "num_experts_per_tok", None)

    def look(module: Any, _inputs: Any, output: Any) -> None:
        scores = output[0].detach()
        if type(module).__name__ == "Gemma4TextRouter":
            scores = scores.log()  # probabilities; the others give logits
        ordered = scores.sort(-1, descending=True).values
        margins = (ordered[:, top - 1] - ordered[:, top]).reshape(len(ids), -1).amin(-1).numpy()
        np.minimum(least, margins, out=least)

    routers = [m for m in model.modules() if type(m).__name__.endswith(("TopKRouter", "TextRouter"))]
    hooks = [router.register_forward_hook(look) for router in routers]
    reference_logits(model, ids)
    for hook in hooks:
        hook.remove()
    return least


def _choose(model: Any, tokens: int, count: int, steps: int) -> tuple[Any, Any, Any, Any, float]:
    """Prompt, greedy ids, their margins, last logits, least router margin: of the clearest candidate."""
    rng = np.random.default_rng(tokens)
    prompts = rng.integers(4, FIRST_MEDIA_ID, (count, tokens))
    prompts[:, 0] = BOS
    ids, margins, last = _continue_greedily(model, prompts, steps)
    whole = np.concatenate([prompts, ids], 1)
    routers = router_margins(model, whole)
    exact = copy.deepcopy(model).double()
    exact.set_experts_implementation("eager")  # the grouped product has no float64
    noise = np.abs(reference_logits(model, whole) - reference_logits(exact, whole)).max((1, 2))
    stops = (np.isin(ids, [PAD, EOS, BOS, 3]) | (ids >= FIRST_MEDIA_ID)).any(1)
    distinct = np.array([len(set(row)) for row in ids.tolist()])
    score = np.minimum(margins.min(1), routers) - 10.0 * stops - 10.0 * (distinct < steps // 2)
    score -= 10.0 * (noise > NOISE)
    best = int(score.argmax())
    if score[best] < ROUTER_MARGIN:
        raise RuntimeError(f"no prompt of {tokens} tokens is clear: {score[best]}, noise {noise.min()}")
    return prompts[best], ids[best], margins[best], last[best], float(routers[best])


def family_golden(model: Any, positions: int) -> tuple[dict[str, Any], float]:
    """What one golden file holds, from transformers in float32, and the least router margin on its tokens."""
    prompt, ids, margins, last, router = _choose(model, PROMPT_TOKENS, CANDIDATES, GREEDY_TOKENS)
    first8, norms = _fingerprints(model, prompt)
    result = {
        "prompt": prompt.astype(np.int32),
        "logits": reference_logits(model, prompt[None])[0],
        "greedy": ids.astype(np.int32),
        "margins": margins.astype(np.float32),
        "decode_logits": last,
        "hidden_first8": first8,
        "hidden_norm": norms,
    }
    if positions:
        prompt, ids, margins, _, more = _choose(model, positions, 48, 8)
        router = min(router, more)
        logits = reference_logits(model, prompt[None])[0]
        result |= {
            "long_prompt": prompt.astype(np.int32),
            "long_logits": logits[LONG_FROM:],
            "long_argmax": logits.argmax(-1).astype(np.int32),
            "long_greedy": ids.astype(np.int32),
            "long_margins": margins.astype(np.float32),
        }
    return result, router


def family_mlx_run(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    """mlx-lm in float32 on the same file. Its +1 of norms is exact here: see `weight` in make_families.py."""
    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    difference = _mlx_difference(model, result["prompt"], result["logits"])
    wrong = _mlx_wrong_ids(model, result["prompt"], result["greedy"])
    if "long_prompt" in result:
        difference = max(difference, _mlx_difference(model, result["long_prompt"], result["long_logits"]))
        wrong += _mlx_wrong_ids(model, result["long_prompt"], result["long_greedy"])
    return {"mlx_max_logit_difference": difference, "mlx_greedy_ids_that_differ": wrong}


def load_mlx_values(base: Path, folder: Path, arch: Family) -> Any:
    """transformers' model of `base` with the (dequantised) weights of the MLX file `folder` instead."""
    model = load_reference(base, arch)
    own = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if "layer_scalar" in n}
    missing = {name for name in own if not _OTHER_TOWER.search(name)}
    for name, array in _to_transformers(dequantise(folder), arch, own).items():
        with torch.no_grad():
            if tuple(own[name].shape) != array.shape:
                raise RuntimeError(f"{folder}: {name}: {array.shape}, not {tuple(own[name].shape)}")
            own[name].copy_(torch.from_numpy(np.ascontiguousarray(array)))
        missing.discard(name)
    tied = model.config.get_text_config().tie_word_embeddings
    if missing - ({"lm_head.weight"} if tied else set()):
        raise RuntimeError(f"{folder}: the MLX file does not set {sorted(missing)}")
    model.tie_weights()
    return model


def _to_transformers(stored: dict[str, Any], arch: Family, own: Any) -> dict[str, Any]:
    """Names and layout of an MLX file to those of transformers' modules."""
    wrapped = any(name.startswith("model.language_model.") for name in own)
    plus_one = arch.name.startswith(("qwen3_5", "qwen3_next"))
    result: dict[str, Any] = {}
    halves: dict[str, dict[str, Any]] = {}
    for name, array in stored.items():
        name = name.removeprefix("language_model.")
        if plus_one and _PLUS_ONE.search(name):
            array = array - 1.0
        if wrapped and name.startswith("model."):
            name = "model.language_model." + name.removeprefix("model.")
        if name.endswith("conv1d.weight"):
            array = np.moveaxis(array, 1, 2)
        found = re.fullmatch(r"(.*)\.(mlp\.switch_mlp|experts\.switch_glu)\.(\w+)_proj\.weight", name)
        if not found:
            result[name] = array
            continue
        experts = found[1] + (".mlp.experts" if "mlp" in found[2] else ".experts")
        if found[3] == "down":
            result[f"{experts}.down_proj"] = array
        else:
            halves.setdefault(experts, {})[found[3]] = array
    for experts, half in halves.items():
        result[f"{experts}.gate_up_proj"] = np.concatenate([half["gate"], half["up"]], 1)
    return result


def weights_move(model: Any, result: dict[str, Any]) -> dict[str, float]:
    """How far the logits move when a kind of tensor is neutral, or its rows, taps, experts are off by one."""
    tensors = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if "layer_scalar" in n}
    kinds: dict[str, list[Any]] = {}
    for name, tensor in tensors.items():
        if not _OTHER_TOWER.search(name):
            kinds.setdefault(re.sub(r".*layers\.\d+\.|.*model\.", "", name), []).append(tensor)
    prompt = result.get("long_prompt", result["prompt"])
    want = result.get("long_logits", result["logits"])
    start = len(prompt) - len(want)
    moved = {}
    for kind, members in kinds.items():
        kept = [tensor.detach().clone() for tensor in members]
        with torch.no_grad():
            for tensor in members:
                tensor.copy_(_spoiled(kind, tensor))
        moved[kind] = float(np.abs(reference_logits(model, prompt[None])[0, start:] - want).max())
        with torch.no_grad():
            for tensor, old in zip(members, kept, strict=True):
                tensor.copy_(old)
    return moved


def _spoiled(kind: str, tensor: Any) -> Any:
    if kind.endswith(("A_log", "dt_bias")):
        return torch.zeros_like(tensor)
    if kind.endswith(("layer_scalar", "per_expert_scale", "router.scale")):
        return torch.ones_like(tensor)
    if kind.endswith("conv1d.weight"):
        return tensor.roll(1, -1)
    if tensor.ndim == 1:
        return tensor.mean().expand_as(tensor)
    return torch.zeros_like(tensor) if len(tensor) == 1 else tensor.roll(1, 0)


def config_moves(folder: Path, arch: Family, result: dict[str, Any]) -> dict[str, float]:
    """How far the logits move when a loader forgets a value of the config that fixes no shape."""
    weights = load_reference(folder, arch).state_dict()
    text = arch.config.get("text_config", arch.config)

    def ropes(config: dict[str, Any]) -> list[dict[str, Any]]:
        rope = config["rope_parameters"]
        return [rope] if "rope_theta" in rope else list(rope.values())

    changes: dict[str, Any] = {"rope_theta": lambda c: [r.update(rope_theta=2e4) for r in ropes(c)]}
    if any("partial_rotary_factor" in rope for rope in ropes(text)):
        changes["partial_rotary_factor"] = lambda c: [
            r.update(partial_rotary_factor=1.0) for r in ropes(c) if "partial_rotary_factor" in r
        ]
        if arch.name.startswith("gemma"):
            changes["proportional_rope"] = lambda c: [r.update(rope_type="default") for r in ropes(c)]
    if "norm_topk_prob" in text:
        changes["norm_topk_prob"] = lambda c: c.update(norm_topk_prob=not text["norm_topk_prob"])
    for key in ("num_experts_per_tok", "top_k_experts"):
        if key in text:
            changes[key] = lambda c, key=key: c.update({key: text[key] + 1})
    if "sliding_window" in text:
        changes["sliding_window_off_by_one"] = lambda c: c.update(sliding_window=text["sliding_window"] + 1)
        changes["final_logit_softcapping"] = lambda c: c.update(final_logit_softcapping=None)
    moved = {}
    for what, change in changes.items():
        config = json.loads((folder / "config.json").read_text())
        change(config.get("text_config", config))
        ablated = getattr(transformers, arch.config_class)(**config)
        ablated._attn_implementation = "eager"
        other = getattr(transformers, arch.model_class)(ablated).eval()
        other.load_state_dict(weights, strict=False)
        logits = reference_logits(other, result["prompt"][None])[0]
        moved[what] = float(np.abs(logits - result["logits"]).max())
    return moved
