"""Correctness and speed of expanding trellis-coded weights, and of a bf16 product after it beside
the bf16 product alone. Needs PyTorch and a cubin of kernels.cu: python3 expand.py CUBIN"""

import ctypes
import sys

import torch

import contract
from cuda_driver import Module, time_us

DEVIATION = torch.tensor([0x4313CCF0], dtype=torch.int32).view(torch.float32)


def expanded(codes, scales, bits, dtype):
    """Exact values times scales in f32, rounded once, from blocks [rows, blocks, words]."""
    y = contract.byte_sums(codes, bits).float()
    value = y / DEVIATION.cuda().expand_as(y)
    return (value * scales[:, None, None]).to(dtype).flatten(1)


def random_blocks(*shape):
    return torch.randint(-(2**31), 2**31, shape, dtype=torch.int64, device="cuda").to(torch.int32)


def expand(module, name, codes, scales, rows, blocks, out, offset, bits):
    threads = rows * blocks * (32 if bits == 4 else 16)
    module.launch(name, (-(-threads // 256),), 256, 0, codes, scales, rows, blocks, out,
                  ctypes.c_longlong(offset))


def check(module):
    rows, blocks, offset = 300, 4, 1024
    scales = (torch.rand(rows, device="cuda") * 0.02).half().float()
    for bits in (2, 3, 4):
        codes = random_blocks(rows, blocks, 8 * bits)
        cases = [(f"expand_{bits}_bf16", torch.bfloat16, codes), (f"fill_{bits}", torch.float16, codes)]
        if bits == 3:
            cases.append(("expand_groups_3_bf16", torch.bfloat16, codes.permute(1, 0, 2).contiguous()))
            pairs = codes.reshape(rows, blocks // 2, 48).permute(1, 0, 2).contiguous()
            cases.append(("fill_pairs_3", torch.float16, pairs))
        for name, dtype, stored in cases:
            out = torch.full((offset + rows * blocks * 256,), float("nan"), dtype=dtype, device="cuda")
            expand(module, name, stored, scales, rows, blocks, out, offset, bits)
            expected = expanded(codes, scales, bits, dtype).flatten()
            wrong = int((out[offset:].view(torch.int16) != expected.view(torch.int16)).sum())
            print(f"{name}: {'equal' if wrong == 0 else f'{wrong} WRONG'}")


def main():
    module = Module(sys.argv[1])
    check(module)
    copies = 3
    for outputs, inputs in ((14336, 4096), (5120, 17408)):
        x = torch.randn(512, inputs, device="cuda", dtype=torch.bfloat16)
        scales = torch.rand(outputs, device="cuda") * 0.02
        dense = [torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        out = torch.empty(512, outputs, device="cuda", dtype=torch.bfloat16)
        work = torch.empty(outputs, inputs, device="cuda", dtype=torch.bfloat16)
        gemm = time_us(lambda: [torch.matmul(x, w.T, out=out) for w in dense * 4]) / (4 * copies)
        print(f"{outputs}x{inputs}: bf16 GEMM of 512 rows {gemm:.1f} us, "
              f"{2 * 512 * outputs * inputs / gemm / 1e6:.0f} TFLOP/s", flush=True)
        for bits in (4, 3, 2):
            codes = [random_blocks(outputs, inputs // 256, 8 * bits) for _ in range(copies)]

            def expand_all(then=lambda: None):
                for c in codes * 4:
                    expand(module, f"expand_{bits}_bf16", c, scales, outputs, inputs // 256, work, 0, bits)
                    then()

            alone = time_us(expand_all) / (4 * copies)
            both = time_us(lambda: expand_all(lambda: torch.matmul(x, work.T, out=out))) / (4 * copies)
            print(f"  bits {bits}: expand {alone:.1f} us, expand and GEMM {both:.1f} us: "
                  f"{gemm / both:.2f} of the GEMM's speed", flush=True)


if __name__ == "__main__":
    main()
