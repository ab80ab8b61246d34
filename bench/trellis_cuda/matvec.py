"""Correctness and speed of products of few rows with trellis-coded weights. Needs PyTorch and
cubins of kernels.cu: python3 matvec.py CUBIN..."""

import ctypes
import re
import sys
import time

import torch

import contract
from cuda_driver import SHARED_BYTES, Module, time_us

COPIES = 6
SHAPES = ((14336, 4096), (5120, 17408))
MULTIPROCESSORS = torch.cuda.get_device_properties(0).multi_processor_count


class Matrix:
    """Random codes of one shape, several copies, so that the L2 cache holds no whole round."""

    def __init__(self, outputs: int, inputs: int, bits: int, axis: int, copies: int) -> None:
        self.outputs, self.inputs, self.bits, self.axis = outputs, inputs, bits, axis
        shape = (outputs, inputs // 256) if axis == 1 else (outputs // 256, inputs)
        self.codes = [
            torch.randint(-(2**31), 2**31, (*shape, 8 * bits), dtype=torch.int64, device="cuda").to(
                torch.int32
            )
            for _ in range(copies)
        ]
        lines = outputs if axis == 1 else inputs
        self.scales = (torch.rand(lines, device="cuda") * 0.02 + 0.005).half().float()

    def code_bytes(self) -> int:
        return self.codes[0].numel() * 4


class Product:
    """One product of `rows` rows of random activations. Alone, a row is made integers of in the
    product itself where a kernel does that ("row"), else before it ("columns")."""

    def __init__(self, module, matrix, rows, planes, n_tiles=1, kind="columns", threads=512):
        self.module, self.matrix, self.rows, self.planes = module, matrix, rows, planes
        self.n_tiles, self.kind, self.threads = n_tiles, kind, threads
        self.group_rows = min(rows, 8 * n_tiles // planes)
        self.groups = -(-rows // self.group_rows)
        self.blocks = -(-matrix.inputs // 256)
        columns = self.group_rows * planes
        size = self.groups * self.blocks * columns
        self.x = torch.randn(rows, matrix.inputs, device="cuda")
        self.x[:, ::97] *= 30
        self.bytes = torch.zeros(size * 256, dtype=torch.int8, device="cuda")
        self.sums = torch.zeros(size, dtype=torch.int32, device="cuda")
        self.block_scales = torch.zeros(size, device="cuda")
        self.out = torch.full((rows, matrix.outputs), float("nan"), device="cuda")
        self.partial = torch.empty(self.blocks, rows, matrix.outputs, device="cuda")

    def prepare(self):
        if self.kind == "row":
            return
        tasks = self.rows * self.blocks
        self.module.launch(
            f"prepare_{self.matrix.axis}_{self.planes}", (-(-tasks // 8),), 256, 0, self.x,
            self.matrix.scales, self.rows, self.matrix.inputs, self.group_rows, self.bytes,
            self.sums, self.block_scales,
        )

    def multiply(self, copy=0):
        m = self.matrix
        codes = m.codes[copy]
        shape = (m.inputs, m.outputs)
        prepared = (self.bytes, self.sums, self.block_scales, codes)
        if self.kind == "row" and m.axis == 1:
            name = f"row_inputs_{m.bits}_{self.planes}"
            arguments = (self.x, codes, m.scales, *shape, self.out)
        elif self.kind == "row":
            name = f"row_outputs_{m.bits}_{self.planes}"
            arguments = (self.x, m.scales, codes, *shape, self.partial)
        elif m.axis == 1:
            name = f"columns_inputs_{m.bits}_{self.planes}_{self.n_tiles}"
            arguments = (*prepared, m.scales, self.rows, self.group_rows, *shape, self.out)
        else:
            name = f"columns_outputs_{m.bits}_{self.planes}"
            arguments = (*prepared, self.rows, self.group_rows, *shape, self.partial)
        self.module.launch(
            name, (MULTIPROCESSORS, self.groups), self.threads, SHARED_BYTES, *arguments
        )

    def finish(self):
        if self.matrix.axis == 0:
            count = self.rows * self.matrix.outputs
            self.module.launch(
                "add_partial", (-(-count // 256),), 256, 0, self.partial, self.blocks,
                ctypes.c_longlong(count), self.out,
            )

    def wrong(self, y) -> int:
        """Results that differ from the contract's."""
        self.out.fill_(float("nan"))
        self.prepare()
        self.multiply()
        self.finish()
        torch.cuda.synchronize()
        expected = contract.integer_product(self.x, y, self.matrix.scales, self.matrix.axis,
                                            self.planes)
        return int((self.out.view(torch.int32) != expected.view(torch.int32)).sum())

    def times(self):
        """Microseconds of the product alone, and with all that goes before and after."""
        copies = len(self.matrix.codes)

        def alone():
            for i in range(2 * copies):
                self.multiply(i % copies)

        def whole():
            for i in range(2 * copies):
                self.prepare()
                self.multiply(i % copies)
                self.finish()

        return time_us(alone) / (2 * copies), time_us(whole) / (2 * copies)


def variants(axis):
    """Rows, planes, tiles of 8 columns and kind of product."""
    yield 1, 1, 1, "row"
    yield 1, 2, 1, "row"
    yield 1, 1, 1, "columns"
    yield 1, 2, 1, "columns"
    yield 8, 1, 1, "columns"
    yield 4, 2, 1, "columns"
    if axis == 1:
        yield 8, 2, 2, "columns"


def main():
    modules = [(name, Module(name), int(re.search("[0-9]+", name)[0])) for name in sys.argv[1:]]
    start = time.time()
    for outputs, inputs in ((37 * 16 - 3, 1536), (512, 1536 - 64)):
        for bits in (2, 3, 4):
            axis = 1 if inputs % 256 == 0 else 0
            matrix = Matrix(outputs, inputs, bits, axis, 1)
            y = contract.weight_sums(matrix.codes[0], bits, axis)
            for rows, planes, n_tiles, kind in variants(axis):
                for extra in (0, 5) if kind == "columns" else (0,):
                    wrong = Product(modules[0][1], matrix, rows + extra, planes, n_tiles,
                                    kind).wrong(y)
                    print(f"{outputs}x{inputs} bits {bits} axis {axis} rows {rows + extra} planes "
                          f"{planes} n {n_tiles} {kind}: {'equal' if wrong == 0 else f'{wrong} WRONG'}")
    print(f"correctness {time.time() - start:.1f} s", flush=True)
    for outputs, inputs in SHAPES:
        for axis in (1, 0):
            for bits in (4, 3, 2):
                matrix = Matrix(outputs, inputs, bits, axis, COPIES)
                y = contract.weight_sums(matrix.codes[0], bits, axis) if bits == 3 else None
                for name, module, threads in modules:
                    for rows, planes, n_tiles, kind in variants(axis):
                        if threads > 512 and kind != "row":
                            continue
                        product = Product(module, matrix, rows, planes, n_tiles, kind, threads)
                        wrong = product.wrong(y) if y is not None else "?"
                        alone, whole = product.times()
                        rate = matrix.code_bytes() / 1e3
                        print(f"{outputs}x{inputs} axis {axis} bits {bits} threads {threads} rows "
                              f"{rows} planes {planes} {kind} wrong "
                              f"{wrong}: {alone:6.2f} us {rate / alone:5.0f} GB/s, whole "
                              f"{whole:6.2f} us {rate / whole:5.0f} GB/s", flush=True)
                del matrix, y
    print(f"all {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
