"""Correctness and speed of products of many rows with trellis-coded weights beside the bf16 product
of the same shape. Needs PyTorch and a cubin of many.cu: python3 many.py CUBIN"""

import sys

import torch

import contract
from cuda_driver import SHARED_BYTES, Module, time_us
from matvec import Matrix

DEVIATION = torch.tensor([0x4313CCF0], dtype=torch.int32).view(torch.float32)
PLANES = {"reference": 1, "int8": 1, "int15": 2}


class Product:
    """One product of `rows` rows of random activations."""

    def __init__(self, module, matrix, rows, numeric, columns):
        self.module, self.matrix, self.rows = module, matrix, rows
        self.numeric, self.columns = numeric, columns
        self.tile_rows = columns // PLANES[numeric]
        self.tiles = -(-rows // self.tile_rows)
        self.blocks = -(-matrix.inputs // 256)
        self.x = torch.randn(rows, matrix.inputs, device="cuda")
        self.x[:, ::97] *= 30
        reference = numeric == "reference"
        if reference:
            self.x = self.x.bfloat16().float()
        self.prepared = torch.full((self.tiles * self.blocks * 256 * columns,), float("nan"),
                                   dtype=torch.bfloat16 if reference else torch.float16,
                                   device="cuda")
        self.scales = torch.full((self.tiles * self.blocks * self.tile_rows,), float("nan"),
                                 device="cuda")
        self.out = torch.full((rows, matrix.outputs), float("nan"), device="cuda",
                              dtype=torch.bfloat16 if reference else torch.float32)

    def run(self, copy=0):
        m = self.matrix
        tasks = self.tiles * self.tile_rows * self.blocks
        self.module.launch(f"tiles_{m.axis}_{self.numeric}_{self.columns}", (-(-tasks // 8),), 256,
                           0, self.x, m.scales, self.rows, m.inputs, self.prepared, self.scales)
        self.module.launch(f"many_{m.bits}_{m.axis}_{self.numeric}_{self.columns}",
                           (self.tiles, -(-m.outputs // 128)), 384, SHARED_BYTES, self.prepared,
                           self.scales, m.codes[copy], m.scales, self.rows, m.inputs, m.outputs,
                           self.out)

    def wrong(self, y) -> str:
        """Results that differ from the contract's; for the reference its relative error."""
        self.out.fill_(float("nan"))
        self.run()
        torch.cuda.synchronize()
        m = self.matrix
        if self.numeric == "reference":
            value = y.float() / DEVIATION.cuda().expand_as(y)
            weight = (value * (m.scales[:, None] if m.axis == 1 else m.scales)).bfloat16()
            expected = self.x.double() @ weight.double().T
            error = (self.out.double() - expected).norm() / expected.norm()
            return f"error {error:.1e}"
        expected = contract.integer_product(self.x, y, m.scales, m.axis, PLANES[self.numeric])
        wrong = int((self.out.view(torch.int32) != expected.view(torch.int32)).sum())
        return "equal" if wrong == 0 else f"{wrong} of {expected.numel()} WRONG"

    def time(self):
        copies = len(self.matrix.codes)
        return time_us(lambda: [self.run(i % copies) for i in range(2 * copies)]) / (2 * copies)


def main():
    module = Module(sys.argv[1])
    variants = (("int8", 128), ("int8", 176), ("int15", 176), ("int15", 256), ("reference", 176),
                ("reference", 256))
    cases = [(3, axis, numeric, columns) for axis in (1, 0) for numeric, columns in variants]
    cases += [(bits, axis, "int8", 176) for bits in (2, 4) for axis in (1, 0)]
    cases += [(bits, axis, "int15", 256) for bits in (2, 4) for axis in (1, 0)]
    for bits, axis, numeric, columns in cases:
        for outputs, inputs, rows in ((768, 768, 300), (256, 1536 - 64 * (1 - axis) * 3, 17)):
            if axis == 1:
                outputs -= 7
            matrix = Matrix(outputs, inputs, bits, axis, 1)
            y = contract.weight_sums(matrix.codes[0], bits, axis)
            print(f"{outputs}x{inputs} rows {rows} bits {bits} axis {axis} {numeric} {columns}: "
                  f"{Product(module, matrix, rows, numeric, columns).wrong(y)}", flush=True)
    for outputs, inputs in ((14336, 4096), (5120, 17408)):
        x = torch.randn(512, inputs, device="cuda", dtype=torch.bfloat16)
        dense = [torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        out = torch.empty(512, outputs, device="cuda", dtype=torch.bfloat16)

        def baseline():
            return time_us(lambda: [torch.matmul(x, w.T, out=out) for w in dense * 2]) / 6

        print(f"{outputs}x{inputs}: bf16 GEMM of 512 rows {baseline():.1f} us")
        for axis in (1, 0):
            matrix = Matrix(outputs, inputs, 3, axis, 3)
            y = contract.weight_sums(matrix.codes[0], 3, axis)
            for numeric, columns in variants:
                product = Product(module, matrix, 512, numeric, columns)
                wrong = product.wrong(y)
                gemm, time = baseline(), product.time()
                print(f"  axis {axis} {numeric} {columns}: {wrong}, {time:.1f} us, "
                      f"{gemm / time:.2f} of the GEMM's speed ({gemm:.1f} us)", flush=True)
            del matrix, y


if __name__ == "__main__":
    main()
