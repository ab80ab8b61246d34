"""Correctness and speed of products of few rows with trellis-coded weights. Needs PyTorch and
cubins of kernels.cu: python3 matvec.py CUBIN..."""

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
    """One product of `rows` rows of random activations, prepared."""

    def __init__(self, module, matrix, rows, planes, n_tiles=1, kind="own", threads=512):
        self.module, self.matrix, self.rows, self.planes = module, matrix, rows, planes
        self.n_tiles, self.kind, self.threads = n_tiles, kind, threads
        # Activations of a row group have to fit in shared memory.
        self.group_rows = min(rows, 8 * n_tiles // planes, 200000 // (planes * matrix.inputs))
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
        tasks = self.rows * self.blocks
        self.module.launch(
            f"prepare_{self.matrix.axis}_{self.planes}", (-(-tasks // 8),), 256, 0, self.x,
            self.matrix.scales, self.rows, self.matrix.inputs, self.group_rows, self.bytes,
            self.sums, self.block_scales,
        )

    def multiply(self, copy=0):
        m = self.matrix
        grid = (MULTIPROCESSORS, self.groups)
        if m.axis == 1:
            self.module.launch(
                f"inputs_{m.bits}_{self.planes}_{self.n_tiles}_{self.kind}", grid, self.threads,
                SHARED_BYTES, self.bytes, self.sums, self.block_scales, m.codes[copy], m.scales,
                self.rows, self.group_rows, m.inputs, m.outputs, self.out,
            )
        else:
            self.module.launch(
                f"outputs_{m.bits}_{self.planes}_{self.kind}", grid, self.threads, SHARED_BYTES, self.bytes,
                self.sums, self.block_scales, m.codes[copy], self.rows, self.group_rows, m.inputs,
                m.outputs, self.partial,
            )

    def finish(self):
        if self.matrix.axis == 0:
            count = self.rows * self.matrix.outputs
            import ctypes

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
    """Rows, planes, tiles of 8 columns and kind of columns."""
    yield 1, 1, 1, "single"
    if axis == 1:
        yield 1, 1, 1, "repeated"
        yield 1, 2, 1, "repeated"
    yield 1, 1, 1, "own"
    yield 1, 2, 1, "own"
    yield 8, 1, 1, "own"
    yield 4, 2, 1, "own"
    if axis == 1:
        yield 8, 2, 2, "own"


def main():
    modules = [(name, Module(name), int(re.search("[0-9]+", name)[0])) for name in sys.argv[1:]]
    start = time.time()
    for outputs, inputs in ((37 * 16, 1536), (512, 1536 - 64)):
        for bits in (2, 3, 4):
            axis = 1 if inputs % 256 == 0 else 0
            matrix = Matrix(outputs, inputs, bits, axis, 1)
            y = contract.weight_sums(matrix.codes[0], bits, axis)
            for rows, planes, n_tiles, kind in variants(axis):
                for extra in (0, 5) if kind == "own" else (0,):
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
                    if threads != 512 and axis == 0:
                        continue
                    for rows, planes, n_tiles, kind in variants(axis):
                        if threads != 512 and (n_tiles, planes, rows) == (2, 2, 8) or (threads != 512 and planes == 2 and rows > 1):
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
