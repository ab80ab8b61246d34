"""A Llama decoder in plain float32 over weights that the gguf package dequantizes: what a GGUF file
says without any rounding of activations. Slow and short on purpose."""

import gguf
import numpy as np


class ExactLlama:
    def __init__(self, path: str):
        reader = gguf.GGUFReader(path)
        self._tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
                         for t in reader.tensors}

        def setting(name: str):
            return reader.fields[f"llama.{name}"].contents()

        self._layers = setting("block_count")
        self._heads = setting("attention.head_count")
        self._kv_heads = setting("attention.head_count_kv")
        self._eps = setting("attention.layer_norm_rms_epsilon")
        self._rope_base = setting("rope.freq_base")

    def log_probabilities(self, tokens: list[int]) -> np.ndarray:
        """[T, V]: of each next token given those before it."""
        x = self._tensors["token_embd.weight"][tokens]
        for layer in range(self._layers):
            x = x + self._attention(layer, x)
            x = x + self._feed_forward(layer, x)
        head = self._tensors.get("output.weight", self._tensors["token_embd.weight"])
        logits = self._norm(x, "output_norm") @ head.T
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self._tensors[f"{name}.weight"].T

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        scale = np.sqrt(np.square(x).mean(-1, keepdims=True) + self._eps)
        return x / scale * self._tensors[f"{name}.weight"]

    def _rotate(self, x: np.ndarray) -> np.ndarray:
        """RoPE over neighbouring pairs of [T, H, D], GGUF's order for Llama."""
        count, heads, dims = x.shape
        angles = np.arange(count)[:, None] * self._rope_base ** (-np.arange(0, dims, 2) / dims)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = np.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
        return turned.reshape(count, heads, dims).astype(np.float32)

    def _attention(self, layer: int, x: np.ndarray) -> np.ndarray:
        count, width = x.shape
        dims = width // self._heads
        h = self._norm(x, f"blk.{layer}.attn_norm")
        q, k, v = (self._linear(h, f"blk.{layer}.attn_{part}").reshape(count, -1, dims)
                   for part in "qkv")
        q, k = self._rotate(q), self._rotate(k)
        k, v = (np.repeat(part, self._heads // self._kv_heads, axis=1) for part in (k, v))
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(dims)
        scores = np.where(np.tril(np.ones((count, count), bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("hts,shd->thd", weights, v).reshape(count, width).astype(np.float32)
        return self._linear(mixed, f"blk.{layer}.attn_output")

    def _feed_forward(self, layer: int, x: np.ndarray) -> np.ndarray:
        h = self._norm(x, f"blk.{layer}.ffn_norm")
        gate = self._linear(h, f"blk.{layer}.ffn_gate")
        hidden = gate / (1 + np.exp(-gate)) * self._linear(h, f"blk.{layer}.ffn_up")
        return self._linear(hidden, f"blk.{layer}.ffn_down")
