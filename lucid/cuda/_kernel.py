"""`kernel`: a CUDA kernel of your own as a differentiable operation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..autograd.record import RECORDED, recorder
from ..errors import DeviceError, KernelError
from ..kernel import loader
from ..ops.registry import OPS, Op, Sample
from ..storage.backend import Backend
from ._signature import C_NAMES, Parameter, number, parameters_of

# Bytes of dynamic shared memory that a kernel may take without asking (CUDA C++ programming guide).
_SHARED = 48 << 10

Named = Callable[..., Any]


def kernel(
    source: str | Path,
    name: str | None = None,
    *,
    shapes: Mapping[str, Named] | None = None,
    sizes: Mapping[str, Named] | None = None,
    grid: Named | None = None,
    block: int | tuple[int, ...] = 256,
    shared_mem: Named | int = 0,
    backward: Mapping[str, Named] | None = None,
    reference: Named | None = None,
    zeroed: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
    samples: tuple[Sample, ...] = (),
) -> Kernel:
    """An operation that launches a CUDA kernel, recorded like every other one: a `Kernel`.

    It is called with tensors and numbers. What the kernel takes is read from its own parameter list: `const
    T* x` is an input tensor, `T* out` an output, `T n` a number. T is scalar_t (the dtype of the first such
    input; the kernel is compiled once per dtype), accum_t (float32 for 16-bit floats, else scalar_t), or a C
    type that fixes the dtype. float16 and bfloat16 arrive as 16 bits: `#include "lucid.cuh"` for `up(x)` and
    `down(x)`, and for 128-bit accesses, reductions and Philox.

    source: CUDA source, or the path of a .cu file. name: which kernel, when there are several. shapes: output
    -> function of inputs and numbers (by name) that gives its shape; default: the first input's. sizes:
    number -> function of inputs (by name) that gives it; other numbers are arguments of the call, after the
    tensors, in order. grid: function (by name, as above) that gives the grid; default: one thread per element
    of the first output. block: threads. shared_mem: bytes of dynamic shared memory, or a function that gives
    them. backward: input -> formula(F, g, ...) that may name inputs, outputs, numbers and `<input>_shape`, in
    operations of `F`: `F.<name>` also finds other kernels. The same formula serves second derivatives.
    Without one there is no derivative for that input. reference: function(xp, inputs and numbers in order) in
    array operations: what runs on the CPU, and what tests compare with. zeroed: outputs to fill with zeros
    first (for atomics). options: more compiler options. samples: for `lucid.testing.checks`.

    Inputs are made contiguous and begin at a multiple of 16 bytes; outputs with no elements launch nothing.
    Raises KernelError with file and line when the source does not compile, DeviceError for CPU tensors
    without a `reference`. Test it without a GPU with `lucid.testing.simulator.check_kernel`.

    >>> import lucid
    >>> cube = lucid.cuda.kernel(
    ...     '''
    ...     extern "C" __global__ void cube(const scalar_t* x, scalar_t* out, long long n) {
    ...       long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    ...       if (i < n) out[i] = x[i] * x[i] * x[i];
    ...     }
    ...     ''',
    ...     sizes={"n": lambda x: x.size},
    ...     backward={"x": lambda F, g, x: 3.0 * g * x * x},
    ...     reference=lambda xp, x: x * x * x,
    ... )
    >>> cube
    <lucid.cuda.Kernel cube(x) -> out>
    >>> x = lucid.tensor([1.0, 2.0, 3.0], requires_grad=True)  # device="cuda" launches the kernel
    >>> cube(x).sum().backward()
    >>> x.grad
    tensor([ 3., 12., 27.])
    """
    text, place = _read(source)
    found, parameters = parameters_of(text, name)
    if not any(p.is_input for p in parameters) or not any(p.is_output for p in parameters):
        raise KernelError(
            f"kernel {found}: expected at least one input (const pointer) and one output (pointer), got "
            f"{', '.join(map(str, parameters))}"
        )
    return Kernel(
        found,
        text,
        place,
        parameters,
        shapes=_readers(found, "shapes", shapes or {}, parameters, outputs=True),
        sizes=_readers(found, "sizes", sizes or {}, parameters, outputs=False),
        grid=None if grid is None else _by_name(grid),
        block=(block,) if isinstance(block, int) else tuple(block),
        shared_mem=_by_name(shared_mem) if callable(shared_mem) else lambda values, n=shared_mem: n,
        backward=dict(backward or {}),
        reference=reference,
        zeroed=frozenset(zeroed),
        options=tuple(options),
        samples=tuple(samples),
    )


class Kernel:
    """A CUDA kernel as an operation, made by `lucid.cuda.kernel`; `op` is its entry in the registry.

    >>> import lucid
    >>> source = '''extern "C" __global__ void twice(const scalar_t* x, scalar_t* out, long long n) {
    ...   long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    ...   if (i < n) out[i] = 2 * x[i];
    ... }'''
    >>> size = {"n": lambda x: x.size}
    >>> twice = lucid.cuda.kernel(source, sizes=size, reference=lambda xp, x: 2 * x)
    >>> twice(lucid.tensor([1.0, 2.0])), twice.op.name
    (tensor([2., 4.]), 'twice')
    """

    def __init__(
        self,
        name: str,
        source: str,
        place: str,
        parameters: tuple[Parameter, ...],
        *,
        backward: dict[str, Named],
        samples: Any,
        **how: Any,
    ) -> None:
        self.name, self.source, self.place, self.parameters = name, source, place, parameters
        self.reference: Named | None = how.pop("reference")
        self._how = how
        self._functions: dict[Any, Any] = {}
        self.inputs = tuple(p.name for p in parameters if p.is_input)
        outputs = tuple(p.name for p in parameters if p.is_output)
        self._numbers = tuple(p for p in parameters if not p.pointer and p.name not in how["sizes"])
        signature = self._signature()
        self.op = Op(
            _signed(self._elsewhere, signature),
            name=name,
            outputs=outputs,
            public=False,
            samples=samples,
            reference=self._host_reference(),
        )
        self.op.doc = f"CUDA kernel {name}({', '.join(map(str, parameters))})."
        self.op.accelerate("cuda", forward=_signed(self._launch, signature))
        if backward:
            self.op.grad(**backward)
        _register(self.op)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The output tensor, or a tuple of them. Arguments: input tensors, then numbers, each in the order of
        the source.
        """
        return recorder(self.op)(*args, **kwargs)

    def __repr__(self) -> str:
        arguments = (*self.inputs, *(f"{p.name}: {p.kind.__name__}" for p in self._numbers))
        return f"<lucid.cuda.Kernel {self.name}({', '.join(arguments)}) -> {', '.join(self.op.outputs)}>"

    def _signature(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        tensors = [inspect.Parameter(n, kind) for n in ("xp", *self.inputs)]
        return inspect.Signature(
            tensors + [inspect.Parameter(p.name, kind, annotation=p.kind) for p in self._numbers]
        )

    def _host_reference(self) -> Named | None:
        if self.reference is None:
            return None
        import numpy

        reference = self.reference
        return lambda *args, **kwargs: reference(numpy, *args, **kwargs)

    def _elsewhere(self, xp: Any, *args: Any) -> Any:
        """The operation by its reference: on the CPU."""
        if self.reference is None:
            raise DeviceError(
                f"kernel {self.name}: expected CUDA tensors, got tensors on the CPU; move them with .cuda(), "
                "or give the kernel a reference="
            )
        return self.reference(xp, *args)

    def _launch(self, xp: Any, *args: Any) -> Any:
        """The output arrays of a launch on the current stream."""
        how = self._how
        values = dict(zip((*self.inputs, *(p.name for p in self._numbers)), args, strict=True))
        scalar = self._scalar_dtype(values)
        for p in self.parameters:
            if p.is_input:
                values[p.name] = self._input(xp, p, values[p.name], scalar)
        arguments, outputs = {}, {}
        for p in self.parameters:
            if p.is_output:
                shape = (
                    how["shapes"][p.name](values) if p.name in how["shapes"] else values[self.inputs[0]].shape
                )
                outputs[p.name] = (xp.zeros if p.name in how["zeroed"] else xp.empty)(
                    shape, dtype=p.dtype(scalar)
                )
                arguments[p.name] = outputs[p.name]
            elif p.is_input:
                arguments[p.name] = values[p.name]
            else:
                value = how["sizes"][p.name](values) if p.name in how["sizes"] else values[p.name]
                arguments[p.name] = number(self.name, p, value, scalar)
        first = outputs[self.op.outputs[0]]
        grid = self._grid(values, first)
        if all(grid):
            function, shared = self._function(xp, scalar), int(how["shared_mem"](values))
            if shared > _SHARED and function.max_dynamic_shared_size_bytes < shared:
                self._allow(xp, function, shared)
            values_ = tuple(arguments[p.name] for p in self.parameters)
            function(grid, how["block"], values_, shared_mem=shared)
        return tuple(outputs.values()) if len(outputs) > 1 else first

    def _allow(self, xp: Any, function: Any, shared: int) -> None:
        """Nothing; the kernel may take so much dynamic shared memory: CUDA wants to be asked beyond 48 KiB.
        """
        most = xp.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"] - function.shared_size_bytes
        if shared > most:
            raise KernelError(
                f"kernel {self.name}: asks for {shared} bytes of dynamic shared memory per block, the device "
                f"has {most}; lower shared_mem"
            )
        function.max_dynamic_shared_size_bytes = shared

    def _scalar_dtype(self, values: dict[str, Any]) -> Any:
        for p in self.parameters:
            if p.is_input and p.ctype == "scalar_t":
                return values[p.name].dtype
        return values[self.inputs[0]].dtype

    def _input(self, xp: Any, p: Parameter, x: Any, scalar: Any) -> Any:
        if x.dtype != p.dtype(scalar):
            raise KernelError(
                f"kernel {self.name}: {p.name} ({p.ctype}*) must be {p.dtype(scalar).name}, "
                f"got {x.dtype.name}; "
                "cast it with .to()"
            )
        # A kernel sees an address only, so views with gaps are copied; and those that start anywhere, since a
        # 128-bit access at an odd address ends the process's use of the device.
        return x if x.flags.c_contiguous and not x.data.ptr % 16 else x.copy(order="C")

    def _grid(self, values: dict[str, Any], first: Any) -> tuple[int, ...]:
        if self._how["grid"] is None:
            threads = 1
            for n in self._how["block"]:
                threads *= n
            return ((first.size + threads - 1) // threads,)
        grid = self._how["grid"](values)
        return tuple(int(n) for n in grid) if isinstance(grid, (tuple, list)) else (int(grid),)

    def _function(self, xp: Any, scalar: Any) -> Any:
        key = (xp.cuda.runtime.getDevice(), scalar)
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = self._compile(xp, scalar)
        return found

    def _compile(self, xp: Any, scalar: Any) -> Any:
        with_header = "lucid.cuh" in self.source
        if scalar.name not in C_NAMES or with_header and scalar.name not in loader.MACRO:
            raise KernelError(
                f"kernel {self.name}: is not made for {scalar.name}; scalar_t may be "
                f"{', '.join(loader.MACRO if with_header else C_NAMES)}"
            )
        element, accumulator = C_NAMES[scalar.name]
        options = (
            loader.options(scalar.name)
            if with_header
            else ("-std=c++17", f"-Dscalar_t={element}", f"-Daccum_t={accumulator}")
        )
        try:
            module = xp.RawModule(
                code=f'#line 1 "{self.place}"\n{self.source}', options=(*options, *self._how["options"])
            )
            return module.get_function(self.name)
        except Exception as error:  # CuPy's CompileException, or an error of the driver
            log = str(error.get_message() if hasattr(error, "get_message") else error)
            file, line, complaint = loader.first_error(log)
            where = f"{file}:{line}: " if file else ""
            raise KernelError(
                f"kernel {self.name}: does not compile with scalar_t = {element}: {where}{complaint}"
            ) from error


def _read(source: str | Path) -> tuple[str, str]:
    """(CUDA source, its name in messages)."""
    if isinstance(source, str) and "\n" in source or "__global__" in str(source):
        return str(source), "kernel.cu"
    path = Path(source)
    try:
        return path.read_text(), path.name
    except OSError as error:
        raise KernelError(
            f"kernel: {path} cannot be read ({error.strerror}); pass CUDA source, or the path of a .cu file"
        ) from error


def _by_name(function: Named) -> Callable[[dict[str, Any]], Any]:
    """The function on a dictionary, from which it takes what its parameters name."""
    names = tuple(inspect.signature(function).parameters)
    return lambda values: function(*[values[n] for n in names])


def _readers(
    kernel: str, what: str, given: Mapping[str, Named], parameters: tuple[Parameter, ...], outputs: bool
) -> dict[str, Any]:
    allowed = [p.name for p in parameters if (p.is_output if outputs else not p.pointer)]
    sizes = {p.name for p in parameters if p.is_input} | (
        {p.name for p in parameters if not p.pointer} if outputs else set()
    )
    for name, function in given.items():
        if name not in allowed:
            raise KernelError(
                f"kernel {kernel}: {what} names {name!r}, which is none of "
                f"{', '.join(allowed) or 'its parameters'}"
            )
        unknown = [n for n in inspect.signature(function).parameters if n not in sizes]
        if unknown:
            raise KernelError(
                f"kernel {kernel}: {what}[{name!r}] takes {', '.join(unknown)}; it may name "
                f"{', '.join(sorted(sizes))}"
            )
    return {name: _by_name(function) for name, function in given.items()}


def _signed(function: Named, signature: inspect.Signature) -> Named:
    def call(xp: Any, *args: Any) -> Any:
        return function(xp, *args)

    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__module__ = __name__
    return call


def _register(op: Op) -> None:
    """Nothing; `F.<name>` finds the kernel, in the place of an earlier kernel of that name (a cell that is
    run again).
    """
    present = OPS.get(op.name)
    if present is not None and present.module != __name__:
        raise KernelError(f"kernel {op.name}: lucid has an operation of that name; give the kernel another")
    OPS[op.name] = op
    RECORDED.__dict__.pop(op.name, None)
    for backend in Backend.instances():
        vars(backend.F).pop(op.name, None)
