"""The numbers of `lucid.kernel.cublaslt_api` against NVIDIA's headers, and against the library itself: its
descriptors need no GPU. Skipped where neither is installed (package nvidia-cublas).
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path

import pytest

from lucid.kernel import cublaslt_api as api


def _installed(*patterns):
    for folder in sys.path:
        for pattern in patterns:
            yield from sorted(Path(folder or ".", "nvidia").glob(pattern))


def _header(name):
    given = os.environ.get("LUCID_CUBLASLT_HEADER")
    roots = [Path(given).parent] if given else []
    roots += [p.parent for p in _installed("cu13/include/cublasLt.h", "cublas/include/cublasLt.h")]
    roots += [Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"), "include")]
    found = next((r / name for r in roots if (r / name).is_file()), None)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found.read_text()


def constants(text):
    """name -> number of every enumerator of a C header whose value is written out."""
    found = {}
    for name, value in re.findall(r"^\s+(C\w+)\s*=\s*\(?([^,/\n]+?)\)?\s*(?:,|/|\n)", text, re.M):
        expression = re.sub(r"[A-Z]\w+", lambda m: str(found.get(m[0], m[0])), value)
        if re.fullmatch(r"[\d\sx|a-fA-F()]+", expression):
            found[name] = eval(expression)
    return found


def test_enumerators():
    lt = constants(_header("cublasLt.h"))
    for prefix, table in (
        ("CUBLASLT_MATMUL_DESC_", api.DESC),
        ("CUBLASLT_MATRIX_LAYOUT_", api.LAYOUT),
        ("CUBLASLT_MATMUL_PREF_", api.PREFERENCE),
    ):
        assert {name: lt[prefix + name] for name in table} == {name: row[0] for name, row in table.items()}
    assert {
        ours: lt[f"CUBLASLT_EPILOGUE_{theirs}"] for ours, theirs in api.EPILOGUE_NAMES.items()
    } == api.EPILOGUES
    assert lt["CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE"] == api.REDUCTION_COMPUTE_TYPE


def test_types_of_attributes():
    """The C type that the header's comment gives an attribute."""
    text = _header("cublasLt.h")
    named = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64}
    named |= {"uint64_t": ctypes.c_uint64, "void *": ctypes.c_void_p, "const void *": ctypes.c_void_p}
    for prefix, table in (
        ("CUBLASLT_MATMUL_DESC_", api.DESC),
        ("CUBLASLT_MATRIX_LAYOUT_", api.LAYOUT),
        ("CUBLASLT_MATMUL_PREF_", api.PREFERENCE),
    ):
        for name, (_, ctype) in table.items():
            comment = text[: text.index(f"  {prefix}{name} =")].rsplit("/**", 1)[1]
            said = re.findall(r"\*\s+(?:Bias case: )?(u?int\d+_t|(?:const )?void \*)[,;\s]", comment)
            assert said and named[said[0]] is ctype, f"{prefix}{name}: {said}"


def test_numbers_of_cublas_and_of_the_runtime():
    found = constants(_header("cublas_api.h"))
    assert {n: found[f"CUBLAS_COMPUTE_{n}"] for n in api.COMPUTE_TYPES} == api.COMPUTE_TYPES
    assert (found["CUBLAS_OP_N"], found["CUBLAS_OP_T"]) == (api.OPERATIONS["n"], api.OPERATIONS["t"])
    assert {found[f"CUBLAS_STATUS_{name}"]: name for name in api.STATUS.values()} == api.STATUS
    types = constants(_header_of_the_runtime())
    names = {"float32": "R_32F", "float64": "R_64F", "float16": "R_16F", "bfloat16": "R_16BF"}
    names |= {"complex64": "C_32F", "complex128": "C_64F"}
    assert {dtype: types[f"CUDA_{name}"] for dtype, name in names.items()} == api.DATA_TYPES


def _header_of_the_runtime():
    places = [Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"), "include", "library_types.h")]
    places += list(_installed("cu13/include/library_types.h", "cuda_runtime/include/library_types.h"))
    found = next((p for p in places if p.is_file()), None)
    if found is None:
        pytest.skip("library_types.h is not installed")
    return found.read_text()


def test_structures_have_the_sizes_of_the_header():
    text = _header("cublasLt.h")
    words = re.search(r"typedef struct \{\s*uint64_t data\[(\d+)\];\s*\} cublasLtMatmulAlgo_t", text)
    assert ctypes.sizeof(api.Algo) == 8 * int(words[1])
    body = re.search(r"typedef struct \{([^}]*)\} cublasLtMatmulHeuristicResult_t", text)[1]
    fields = re.findall(r"^\s+(\w+) (\w+)(?:\[(\d+)\])?;", body, re.M)
    assert fields == [
        ("cublasLtMatmulAlgo_t", "algo", ""),
        ("size_t", "workspaceSize", ""),
        ("cublasStatus_t", "state", ""),
        ("float", "wavesCount", ""),
        ("int", "reserved", "4"),
    ]
    offsets = [getattr(api.Heuristic, name).offset for name, _ in api.Heuristic._fields_]
    assert offsets == [0, 64, 72, 76, 80] and ctypes.sizeof(api.Heuristic) == 96


def test_signatures():
    """The kinds of the parameters in the header: pointers, integers of 4 and of 8 bytes."""
    text = re.sub(r"/\*.*?\*/", "", _header("cublasLt.h"), flags=re.S)
    width = {"uint64_t": 8, "int64_t": 8, "size_t": 8, "int": 4}

    def bytes_of(parameter):
        words = parameter.replace("*", " * ").replace("[]", " * ").split()
        pointer = "*" in words or words[0 if words[0] != "const" else 1].endswith(
            ("Handle_t", "Desc_t", "Layout_t", "Preference_t", "Stream_t")
        )
        return 8 if pointer else width.get(words[0], 4)  # an enumeration

    for name, ours in api.SIGNATURES.items():
        listed = re.search(rf"{name}\(\s*(?://)?\s*([^)]*)\)", text)[1]
        theirs = [p.strip() for p in re.sub(r"//[^\n]*", "", listed).split(",")]
        assert [bytes_of(p) for p in theirs] == [ctypes.sizeof(t) for t in ours], name


# ---- the library itself ----


@pytest.fixture(scope="module")
def library():
    given = os.environ.get("LUCID_CUBLASLT")
    paths = (
        [given]
        if given
        else [str(p) for p in _installed("cu13/lib/libcublasLt.so.*", "cublas/lib/libcublasLt.so.*")]
    )
    if not paths:
        pytest.skip("libcublasLt is not installed")
    return api.Library(ctypes.CDLL(paths[0]))


def read(library, descriptor, attribute):
    """An attribute as the library gives it back, and its size in the library."""
    number, ctype = descriptor.attributes[attribute]
    held, written = ctype(), ctypes.c_size_t()
    function = getattr(library.table, f"{descriptor.kind}GetAttribute")
    function.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    status = function(
        descriptor.value, number, ctypes.byref(held), ctypes.sizeof(held), ctypes.byref(written)
    )
    assert status == 0, (attribute, status)
    return held.value, written.value


def test_the_library_takes_every_descriptor(library):
    assert library.version >= 110400
    for dtype in api.DATA_TYPES:
        scale, _, compute = api.SCALES[dtype]
        operation = library.operation(compute, scale)
        for epilogue, number in api.EPILOGUES.items():
            operation.set("EPILOGUE", number)
            assert read(library, operation, "EPILOGUE") == (number, 4), epilogue
        operation.set("TRANSA", 1)
        operation.set("BIAS_POINTER", 0x7F0000000100)
        assert read(library, operation, "TRANSA") == (1, 4)
        assert read(library, operation, "BIAS_POINTER") == (0x7F0000000100, 8)
        layout = library.layout(dtype, 5, 7, 8, 3, 64)
        values = {"TYPE": api.DATA_TYPES[dtype], "ROWS": 5, "COLS": 7, "LD": 8, "BATCH_COUNT": 3}
        for name, value in (values | {"STRIDED_BATCH_OFFSET": 64}).items():
            assert read(library, layout, name) == (value, ctypes.sizeof(api.LAYOUT[name][1])), name
    preference = library.preference()
    for i, (name, (_, ctype)) in enumerate(api.PREFERENCE.items()):
        preference.set(name, 1 << i)
        assert read(library, preference, name) == (1 << i, ctypes.sizeof(ctype)), name


def test_the_library_refuses_a_value_of_another_size(library):
    operation = library.operation("32F", "float32")
    held = ctypes.c_uint16(1)
    with pytest.raises(api.CublasLtError, match="INVALID_VALUE"):
        library.call("cublasLtMatmulDescSetAttribute", operation.value, 7, ctypes.byref(held), 2)


def test_without_a_gpu_there_is_no_handle(library):
    try:
        handle = library.handle()
    except api.CublasLtError as error:
        assert error.status in api.STATUS
    else:
        assert handle and library.table.cublasLtDestroy(handle) == 0
