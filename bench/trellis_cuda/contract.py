"""The integer contract computed with PyTorch's float64, and the format's exact values."""

import torch

R = torch.tensor([0x3BDDB447], dtype=torch.int32).view(torch.float32)


def byte_sums(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Centered byte sums [..., 256] of trellis blocks [..., 8 * bits] of int32 words."""
    words = codes.to(torch.int64) & 0xFFFFFFFF
    count = 8 * bits
    out = torch.empty(*codes.shape[:-1], 256, dtype=torch.float64, device=codes.device)
    for t in range(256):
        bit = (255 - t) * bits
        i, shift = bit >> 5, bit & 31
        window = words[..., i] | (words[..., (i + 1) % count] & 0xFFFF) << 32
        state = (window >> shift) & 4095
        x = (state * 34038481 + 76625530) & 0xFFFFFFFF
        out[..., t] = ((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24) - 510).double()
    return out


def weight_sums(codes: torch.Tensor, bits: int, axis: int) -> torch.Tensor:
    """[N, K] float64 from axis 1: [N, K / 256, words], axis 0: [N / 256, K, words]."""
    y = byte_sums(codes, bits)
    if axis == 1:
        return y.flatten(1)
    return y.permute(0, 2, 1).reshape(-1, codes.shape[1])


def integer_product(
    x: torch.Tensor, y: torch.Tensor, scales: torch.Tensor, axis: int, planes: int
) -> torch.Tensor:
    """x [rows, K] f32, y [N, K], scales f32: the contract's result, f32."""
    rows, inputs = x.shape
    if axis == 0:
        x = x * scales
    limit = 127.0 if planes == 1 else 32512.0
    total = torch.zeros(rows, y.shape[0], device=x.device)
    for first in range(0, inputs, 256):
        part = x[:, first : first + 256]
        # A division by a tensor: PyTorch may turn one by a number into a product.
        scale = part.abs().amax(1) / torch.full((rows,), limit, device=x.device)
        q = torch.where(scale[:, None] > 0, part / scale[:, None], 0.0)
        q = q.clamp(-limit, limit).round()
        exact = q.double() @ y[:, first : first + 256].double().T
        total = total + exact.float() * scale[:, None]
    r = R.to(x.device)
    return total * (scales * r) if axis == 1 else total * r
