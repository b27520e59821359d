"""Gemma 4's attention layer by layer: kinds, sizes, ropes, and whose keys and values a layer uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saragossa.errors import ConfigError
from saragossa.models.config_base import head_dim_of, kv_heads_of, sliding_layers
from saragossa.models.rope import merge, rope_spec
from saragossa.models.spec import AttentionSpec, RopeSpec

if TYPE_CHECKING:
    from saragossa.models.gemma4_text import Gemma4TextConfig

FULL, SLIDING = "full_attention", "sliding_attention"
_ROPES: dict[str, dict[str, Any]] = {  # what a config may leave out
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}
_SIZES = ("head_dim", "num_key_value_heads")
_GLOBAL_HEAD_DIM = 512  # transformers', where the config has none


class Gemma4Layers:
    """Reads a config's layers. Raises ConfigError."""

    def __init__(self, c: Gemma4TextConfig) -> None:
        self._c = c
        self.kinds = self._kinds()
        self._first_shared = self._shared_from()
        self._sizes = self._read_sizes()
        self._parameters = self._read_ropes()
        self._ropes: dict[tuple[str, int], int] = {}
        self._specs: list[RopeSpec] = []
        self._attention = [self._layer(i) for i in range(c.num_hidden_layers)]

    @property
    def ropes(self) -> tuple[RopeSpec, ...]:
        return tuple(self._specs)

    def attention(self, i: int) -> AttentionSpec:
        return self._attention[i]

    def _kinds(self) -> list[str]:
        c, layers = self._c, self._c.num_hidden_layers
        sliding = sliding_layers(c.layer_types, layers)
        if sliding is None:
            pattern = c.sliding_window_pattern or 6
            # transformers makes the last one full, whatever the pattern says.
            sliding = [(i + 1) % pattern != 0 and i + 1 < layers for i in range(layers)]
        elif sliding[-1]:
            raise ConfigError(
                "layer_types ends with sliding_attention; a Gemma 4 model ends with full_attention"
            )
        return [SLIDING if is_sliding else FULL for is_sliding in sliding]

    def _shared_from(self) -> int:
        c = self._c
        if c.num_kv_shared_layers >= c.num_hidden_layers:
            raise ConfigError(
                f"num_kv_shared_layers is {c.num_kv_shared_layers} of {c.num_hidden_layers} layers; one of "
                "each kind must have keys of its own"
            )
        return c.num_hidden_layers - c.num_kv_shared_layers

    def _read_sizes(self) -> list[tuple[int, int]]:
        """head_dim and num_key_value_heads of each layer, from per_layer_config or the older keys."""
        c = self._c
        own = {"head_dim": c.head_dim, "num_key_value_heads": c.num_key_value_heads}
        older: dict[str, int] = {}
        if c.global_head_dim is not None:
            older["head_dim"] = c.global_head_dim
        elif c.per_layer_config is None and "global_head_dim" not in c.model_fields_set:
            older["head_dim"] = _GLOBAL_HEAD_DIM
        if c.attention_k_eq_v and c.num_global_key_value_heads is not None:
            older["num_key_value_heads"] = c.num_global_key_value_heads
        newer = self._read_overrides()
        sizes = []
        for i, kind in enumerate(self.kinds):
            said, before = newer[i], older if kind == FULL else {}
            for key in _SIZES:
                value = said.get(key, own[key])
                if said and value != before.get(key, value):
                    raise ConfigError(
                        f"per_layer_config gives layer {i} {key} {value}, the global keys {before[key]}"
                    )
            merged = {**own, **before, **said}
            sizes.append((merged["head_dim"], merged["num_key_value_heads"]))
        return sizes

    def _read_overrides(self) -> list[dict[str, int]]:
        """per_layer_config, keyed by layer or by kind."""
        c = self._c
        result: list[dict[str, int]] = [{} for _ in self.kinds]
        for key, values in (c.per_layer_config or {}).items():
            if key in (FULL, SLIDING):
                places = [i for i, kind in enumerate(self.kinds) if kind == key]
            elif key.isdecimal() and int(key) < len(self.kinds):
                places = [int(key)]
            else:
                raise ConfigError(
                    f"per_layer_config has {key!r:.50}; a layer from 0 to {len(self.kinds) - 1} or a kind of "
                    "layers is wanted"
                )
            for name, value in values.items():
                if name not in _SIZES:
                    raise ConfigError(
                        f"per_layer_config.{key} has {name!r:.50}; supported: {', '.join(_SIZES)}"
                    )
                if type(value) is not int or not 0 < value < 1 << 20:
                    raise ConfigError(f"per_layer_config.{key}.{name} is {value!r:.50}; a size is wanted")
                for i in places:
                    result[i][name] = value
        return result

    def _read_ropes(self) -> dict[str, dict[str, Any]]:
        nested = self._c.rope_parameters
        if nested and not set(nested) <= {FULL, SLIDING}:
            raise ConfigError(f"rope_parameters has {sorted(nested)}; {FULL} and {SLIDING} are wanted")
        result = {}
        for kind, default in _ROPES.items():
            section = (nested or {}).get(kind)
            if section is not None and not isinstance(section, dict):
                raise ConfigError(f"rope_parameters.{kind} is {section!r:.100}; an object is wanted")
            result[kind] = merge({}, section or default, "", "") if section or not nested else {}
            if not result[kind] and kind in self.kinds:
                raise ConfigError(f"rope_parameters has no {kind}, but there are such layers")
            result[kind].setdefault("rope_theta", default["rope_theta"])
        if self._c.rope_theta is not None or self._c.partial_rotary_factor is not None:
            raise ConfigError(
                "rope_theta and partial_rotary_factor belong into rope_parameters, one set per kind"
            )
        return result

    def _rope(self, kind: str, head_dim: int) -> int:
        key = (kind, head_dim)
        if key not in self._ropes:
            parameters, limit = self._parameters[kind], self._c.max_position_embeddings
            self._ropes[key] = len(self._specs)
            self._specs.append(rope_spec(parameters, head_dim=head_dim, max_position=limit))
        return self._ropes[key]

    def _layer(self, i: int) -> AttentionSpec:
        c, kind = self._c, self.kinds[i]
        head_dim, kv_heads = self._sizes[i]
        source = self._source(i)
        own = source is None
        return AttentionSpec(
            heads=c.num_attention_heads,
            kv_heads=kv_heads_of(c.num_attention_heads, kv_heads),
            head_dim=head_dim_of(c.hidden_size, c.num_attention_heads, head_dim),
            scale=1.0,
            rope=self._rope(kind, head_dim),
            window=c.sliding_window if kind == SLIDING else 0,
            q_norm=True,
            k_norm=own,
            v_norm=own,
            v_is_k=own and c.attention_k_eq_v and kind == FULL,
            kv_from=source,
        )

    def _source(self, i: int) -> int | None:
        """The layer whose keys and values layer i uses: the last of its kind that has its own."""
        if i < self._first_shared:
            return None
        kind = self.kinds[i]
        found = [j for j in range(self._first_shared) if self.kinds[j] == kind]
        if not found:
            raise ConfigError(
                f"layer {i} shares keys of a {kind} layer, but none of the first {self._first_shared} is one"
            )
        if self._sizes[found[-1]] != self._sizes[i]:
            raise ConfigError(
                f"layer {i} shares keys of layer {found[-1]}, but its head_dim and num_key_value_heads are "
                f"{self._sizes[i]}, not {self._sizes[found[-1]]}"
            )
        return found[-1]
