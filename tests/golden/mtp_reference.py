"""Multi-token prediction of Qwen3.5 checkpoints in NumPy float64, written from published descriptions.

transformers and mlx-lm drop the `mtp.*` tensors, so this is the reference; it shares no code with the engine.

For each position t, from the model's hidden state h_t and the next token x_{t+1}, the head predicts x_{t+2}:

    x = fc(concat(norm_embedding(embed(x_{t+1})), norm_hidden(h_t)))   the embedding comes first
    x = full attention layer of the model's own kind (output gate, q and k norms, partial rotary), causal over
        the pairs so far, with keys and values of its own; then the model's kind of MLP
    logits = lm_head(norm(x))                                          embedding and head are the model's

- h_t is the hidden state *after* the model's final norm, what the model's own head reads. vLLM feeds that
  (its Qwen3NextModel ends in the norm), and projects that fed the state before the norm measured a gain when
  they changed: llama.cpp (pull request 24025), LightLLM (1402: length 1.80 to 2.74), Rapid-MLX (3371).
  The output is right either way, so only acceptance tells.
- To draft further, norm(x) of the head takes the place of h (vLLM's head returns that).
- The pair (h_t, x_{t+1}) has position t here. Rotary embeddings are relative: counting from t + 1 is equal.
- All norms of the head multiply by 1 + w.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


class MtpReference:
    """`tensors`: the checkpoint's names (prefix of the text model stripped to `model.`) to arrays."""

    def __init__(self, tensors: dict[str, Array], text_config: dict[str, Any]) -> None:
        self.w = {name: np.asarray(array, np.float64) for name, array in tensors.items()}
        self.c = text_config
        self.eps = text_config["rms_norm_eps"]

    def hidden(self, model_hidden: Array, next_ids: Array) -> Array:
        """Normed output [pairs, hidden] for h_0..h_n and x_1..x_{n+1}."""
        x = self.pairs(model_hidden, next_ids)
        for index in range(self.c["mtp_num_hidden_layers"]):
            at = f"mtp.layers.{index}."
            x = x + self._attention(self._norm(x, at + "input_layernorm.weight"), at + "self_attn.")
            normed = self._norm(x, at + "post_attention_layernorm.weight")
            x = x + (self._experts if "num_experts" in self.c else self._mlp)(normed, at + "mlp.")
        return self._norm(x, "mtp.norm.weight")

    def pairs(self, model_hidden: Array, next_ids: Array) -> Array:
        """What the head's layer gets [pairs, hidden]."""
        embedded = self.w["model.embed_tokens.weight"][np.asarray(next_ids)]
        pair = [
            self._norm(embedded, "mtp.pre_fc_norm_embedding.weight"),
            self._norm(np.asarray(model_hidden, np.float64), "mtp.pre_fc_norm_hidden.weight"),
        ]
        return np.concatenate(pair, -1) @ self.w["mtp.fc.weight"].T

    def logits(self, hidden: Array) -> Array:
        tied = self.c["tie_word_embeddings"]
        return hidden @ self.w["model.embed_tokens.weight" if tied else "lm_head.weight"].T

    def drafts(
        self, model_hidden: Array, ids: Array, first: int, count: int
    ) -> tuple[list[int], list[float]]:
        """Greedy drafts behind the prompt `ids` and the model's own next token `first`, and their margins."""
        states, tokens = np.asarray(model_hidden, np.float64), [*np.asarray(ids)[1:].tolist(), first]
        drawn: list[int] = []
        margins: list[float] = []
        for _ in range(count):
            last = self.hidden(states, tokens)[-1]
            best = np.sort(self.logits(last))[-2:]
            drawn.append(int(self.logits(last).argmax()))
            margins.append(float(best[1] - best[0]))
            states, tokens = np.concatenate([states, last[None]]), [*tokens, drawn[-1]]
        return drawn, margins

    def _norm(self, x: Array, name: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * (1.0 + self.w[name])

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self.w[name + ".weight"].T

    def _attention(self, x: Array, at: str) -> Array:
        count, heads, kv = len(x), self.c["num_attention_heads"], self.c["num_key_value_heads"]
        size = self.c["head_dim"]
        # A head's queries are followed by its gate.
        q, gate = np.split(self._linear(x, at + "q_proj").reshape(count, heads, 2 * size), 2, -1)
        k = self._linear(x, at + "k_proj").reshape(count, kv, size)
        v = self._linear(x, at + "v_proj").reshape(count, kv, size)
        q = self._rotate(self._norm(q, at + "q_norm.weight"))
        k = self._rotate(self._norm(k, at + "k_norm.weight"))
        k, v = (np.repeat(part, heads // kv, 1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size)
        scores[:, np.triu(np.ones((count, count), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)
        return self._linear((mixed * _sigmoid(gate)).reshape(count, -1), at + "o_proj")

    def _rotate(self, x: Array) -> Array:
        rope = self.c["rope_parameters"]
        dims = int(x.shape[-1] * rope["partial_rotary_factor"])
        angles = np.arange(len(x))[:, None] * rope["rope_theta"] ** (-np.arange(0, dims, 2) / dims)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        first, second = x[..., : dims // 2], x[..., dims // 2 : dims]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, x[..., dims:]], -1)

    def _mlp(self, x: Array, at: str) -> Array:
        gate = self._linear(x, at + "gate_proj")
        return self._linear(gate * _sigmoid(gate) * self._linear(x, at + "up_proj"), at + "down_proj")

    def _experts(self, x: Array, at: str) -> Array:
        scores = self._linear(x, at + "gate")
        shared = self._mlp(x, at + "shared_expert.") * _sigmoid(self._linear(x, at + "shared_expert_gate"))
        gate_up, down = self.w[at + "experts.gate_up_proj"], self.w[at + "experts.down_proj"]
        out = np.zeros_like(x)
        for row, score in enumerate(scores):
            chosen = np.argsort(-score)[: self.c["num_experts_per_tok"]]
            shares = np.exp(score[chosen] - score.max())
            for expert, share in zip(chosen, shares / shares.sum(), strict=True):
                gate, up = np.split(gate_up[expert] @ x[row], 2)
                out[row] += share * (down[expert] @ (gate * _sigmoid(gate) * up))
        return out + shared


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))
