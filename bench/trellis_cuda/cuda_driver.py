"""Kernels of a cubin, launched on PyTorch's current stream."""

import ctypes

import torch

_driver = ctypes.CDLL("libcuda.so.1")
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
SHARED_BYTES = 232448 - 1024  # what a block of an H100 or H200 may have, less some static memory


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"the CUDA driver answered {status}")


class Module:
    """The kernels of one cubin file."""

    def __init__(self, path: str) -> None:
        torch.cuda.current_stream()  # a context
        torch.zeros(1, device="cuda")
        self._module = ctypes.c_void_p()
        with open(path, "rb") as file:
            _check(_driver.cuModuleLoadData(ctypes.byref(self._module), file.read()))
        self._functions: dict[str, ctypes.c_void_p] = {}

    def _function(self, name: str) -> ctypes.c_void_p:
        if name not in self._functions:
            function = ctypes.c_void_p()
            _check(_driver.cuModuleGetFunction(ctypes.byref(function), self._module, name.encode()))
            _check(_driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, SHARED_BYTES))
            self._functions[name] = function
        return self._functions[name]

    def launch(self, name: str, grid: tuple[int, ...], threads: int, shared: int, *args) -> None:
        """Tensors are passed as pointers, Python integers as 32 bits, ctypes values as they are."""
        values = [
            ctypes.c_void_p(a.data_ptr())
            if isinstance(a, torch.Tensor)
            else (ctypes.c_int(a) if isinstance(a, int) else a)
            for a in args
        ]
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values)
        )
        grid = tuple(grid) + (1,) * (3 - len(grid))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _check(
            _driver.cuLaunchKernel(
                self._function(name), *grid, threads, 1, 1, shared, stream, pointers, None
            )
        )


def time_us(work, repeats: int = 7) -> float:
    """Median time of `work()` as a CUDA graph, in microseconds."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000)
    return sorted(times)[repeats // 2]
